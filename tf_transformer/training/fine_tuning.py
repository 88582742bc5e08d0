"""Training that begins with another run's weights; frozen and adapted ones, and positions."""

import json
import logging
from collections.abc import Iterator, Sequence
from fnmatch import fnmatchcase

import keras
import numpy as np

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import sha256, write_text
from tf_transformer.data.text import SIDES, SideName
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_some
from tf_transformer.run.run import evaluation_of

logger = logging.getLogger(__name__)

# --- Learned positions (paper Table 3, row E), usable up to the longest training sentence -----


def record_positions(run: Run, longest: Sequence[int], *, is_chief: bool = True) -> None:
    """Sets how many learned positions, if any, this run or the one it began from trains.

    Positions beyond the `longest` source and target in training still have random initial
    values, so they limit the texts that the model takes. Only the chief writes config.json.
    """
    if not run.config.model.positions_are_limited:
        return
    lengths, trained = list(longest), []
    if source := run.config.training.init_from:
        trained.append(Run.open(source).config.model)
    if run.checkpoints.state_steps():
        trained.append(run.config.model)
    for model in trained:
        before = model.source_positions or 0, model.target_positions or 0
        lengths = list(map(max, lengths, before))
    run.set_positions(*lengths, write=is_chief)


# --- Weights of another run, frozen and adapted weights ---------------------------------------


# Weights with a row for each word piece, and the one with a column for each.
_PIECE_ROWS = ("embeddings", "output_bias")
_PIECE_COLUMNS = "output_projection/kernel"


def begin(run: Run, model: Transformer, tokenizer: Tokenizer, *, is_chief: bool = True) -> None:
    """Prepares the weights of a built model for training, as the run's configuration asks.

    If the run has a state to resume from, no weight is loaded here. Only the chief records the
    origin of the weights, in the run's origin.json. Raises UserError if a weight does not fit,
    a pattern matches no weight, no weight is left to train, or a frozen one would stay random.
    """
    training = run.config.training
    missing: list[str] = []
    if training.init_from and not run.checkpoints.state_steps():
        missing = _take_weights(run, Run.open(training.init_from), model, tokenizer, is_chief)
    if training.lora_rank:
        model.enable_lora(training.lora_rank)
    freeze(model, training.freeze)
    frozen = {weight.path for weight in model.weights if not weight.trainable}
    if random := frozen & {*missing}:
        raise UserError(
            f"Frozen weights must come from {training.init_from}, which lacks "
            f"{_listed(sorted(random))}. Freeze fewer weights, or keep its tokenizer."
        )


def freeze(model: keras.Model, patterns: Sequence[str]) -> None:
    """Excludes weights from training, by patterns; see the setting `training.freeze`.

    Raises UserError if a pattern matches no weight, or nothing is left to train.
    """
    for pattern in patterns:
        inverted = pattern.startswith("!")
        matched = {
            w.path
            for w in model.weights
            if any(fnmatchcase(part, pattern.removeprefix("!")) for part in _parts(w.path))
        }
        if not matched:
            paths = [part for w in model.weights for part in list(_parts(w.path))[:2]]
            known = _listed([*dict.fromkeys(paths)], 12)
            raise UserError(
                f"`training.freeze` {quoted(pattern)} matches no weight. There are: {known}."
            )
        for weight in model.weights:
            if (weight.path in matched) != inverted:
                weight.trainable = False
    if patterns and not model.trainable_variables:
        received = ", ".join(patterns)
        raise UserError(f"`training.freeze` leaves nothing to train. Received: {received}.")


def _parts(path: str) -> Iterator[str]:
    """Yields the paths of the layers around a weight, outermost first, then its own path."""
    names = path.split("/")
    return ("/".join(names[: end + 1]) for end in range(len(names)))


def _take_weights(
    run: Run, source: Run, model: keras.Model, tokenizer: Tokenizer, is_chief: bool
) -> list[str]:
    """Loads the matching weights from the best checkpoint of `source`.

    Returns the paths of weights that keep random values, entirely or for some pieces.
    """
    file = source.checkpoints.find("best")
    pieces = _Pieces(Tokenizer(source.require_tokenizer()), tokenizer)
    missing = load_some(file, model, pieces.merge if pieces.differ else None)
    logger.info("weights: loaded from %s", source.path)
    if pieces.differ:
        logger.warning(
            "the tokenizer differs: %s of %s pieces are also in %s; embeddings of the others "
            "start untrained", f"{pieces.count:,}", f"{tokenizer.vocab_size:,}", source.path,
        )  # fmt: skip
    if missing:
        logger.warning(
            "%s has no weights for %s, which start untrained", source.path, _listed(missing)
        )
    if is_chief:
        origin = {
            "run": str(source.path),
            "sha256": sha256(file),
            "evaluation": evaluation_of(source, file),
            "anew": missing,
            "pieces": [pieces.count, tokenizer.vocab_size],
        }
        write_text(run.origin, json.dumps(origin, indent=2) + "\n")
    partial = [weight.path for weight in model.weights if _has_pieces(weight.path)]
    return missing + partial * (pieces.differ and not pieces.complete)


class _Pieces:
    """Word pieces that two tokenizers share."""

    def __init__(self, old: Tokenizer, new: Tokenizer) -> None:
        self.differ = old.models != new.models
        self._rows = {side: _shared(old, new, side) for side in SIDES}
        # Shared pieces, on the side that shares fewer; are they all of the new tokenizer's?
        self.count = min(len(new_ids) for new_ids, _ in self._rows.values())
        self.complete = self.count == new.vocab_size

    def merge(self, path: str, old: np.ndarray, new: np.ndarray) -> np.ndarray | None:
        """Returns `new` with the old values of shared pieces; None for a weight without pieces.

        `new` is changed in place.
        """
        if not _has_pieces(path):
            return None
        is_target = path.startswith(("target_", "output_"))
        new_ids, old_ids = self._rows["target" if is_target else "source"]
        if path == _PIECE_COLUMNS:
            new[:, new_ids] = old[:, old_ids]
        else:
            new[new_ids] = old[old_ids]
        return new


def _has_pieces(path: str) -> bool:
    """Tells whether a weight has a row or a column for each piece."""
    return path == _PIECE_COLUMNS or path.rpartition("/")[2] in _PIECE_ROWS


def _shared(old: Tokenizer, new: Tokenizer, side: SideName) -> tuple[list[int], list[int]]:
    """Returns the ids of the shared pieces, in the new tokenizer and in the old one."""
    old_id = {piece: index for index, piece in enumerate(old.vocabulary(side))}
    pieces = enumerate(new.vocabulary(side))
    shared = [(index, old_id[piece]) for index, piece in pieces if piece in old_id]
    new_ids, old_ids = zip(*shared, strict=True)
    return list(new_ids), list(old_ids)


def _listed(names: Sequence[str], limit: int = 5) -> str:
    more = f" and {len(names) - limit:,} more" * (len(names) > limit)
    return ", ".join(names[:limit]) + more
