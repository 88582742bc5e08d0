"""Weights that a training begins with: those of another run, some frozen or adapted."""

import json
import logging
from collections.abc import Iterable, Iterator, Sequence
from fnmatch import fnmatchcase

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.data.corpus import SIDES, SideName
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.errors import UserError, quoted
from tf_transformer.files import sha256, write_text
from tf_transformer.models.configured import ConfiguredModel
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import load_some
from tf_transformer.run.facts import evaluation_of

logger = logging.getLogger(__name__)

# Weights with a row, or here a column, for each word piece.
_OF_PIECES = ("embeddings", "output_bias")
_COLUMNS_OF_PIECES = "output_projection/kernel"


def begin(
    run: Run, model: ConfiguredModel, tokenizer: Tokenizer, *, is_chief: bool = True
) -> None:
    """Prepares the weights of a built model for training, as the run's configuration says.

    Args:
        run: of the training; once it has a state to go on from, no weight is loaded.
        model: its new model.
        tokenizer: its tokenizer.
        is_chief: whether to record where the weights come from, in the run's origin.json.

    Raises:
        UserError: if a weight does not fit, a pattern matches none, or none is left to train.
    """
    training = run.config.training
    anew: list[str] = []
    if training.init_from and not run.checkpoints.state_steps():
        anew = _take_weights(run, Run.open(training.init_from), model, tokenizer, is_chief)
    if training.lora_rank:
        model.enable_lora(training.lora_rank)
    freeze(model, training.freeze)
    random = {weight.path for weight in model.weights if not weight.trainable} & {*anew}
    if random:
        raise UserError(
            f"Frozen weights must come from {training.init_from}, which lacks "
            f"{_listed(sorted(random))}. Freeze less, or keep its tokenizer and task."
        )


def freeze(model: keras.Model, patterns: Sequence[str]) -> None:
    """Excludes weights from training; see `training.freeze` for the patterns.

    Raises:
        UserError: if a pattern matches no weight, or nothing is left to train.
    """
    for pattern in patterns:
        kept = pattern.startswith("!")
        matched = {w.path for w in model.weights if _matches(w.path, pattern.removeprefix("!"))}
        if not matched:
            paths = [part for w in model.weights for part in list(_parts(w.path))[:2]]
            known = _listed([*dict.fromkeys(paths)], 12)
            raise UserError(
                f"--freeze {quoted(pattern)} matches no weight. There are: {known}."
            )
        for weight in model.weights:
            if (weight.path in matched) != kept:
                weight.trainable = False
    if patterns and not model.trainable_variables:
        raise UserError(f"--freeze leaves nothing to train. Received: {', '.join(patterns)}.")


def _matches(path: str, pattern: str) -> bool:
    return any(fnmatchcase(part, pattern) for part in _parts(path))


def _parts(path: str) -> Iterator[str]:
    """Yields the layers that hold a weight, outermost first, and the weight's own path."""
    names = path.split("/")
    return ("/".join(names[: end + 1]) for end in range(len(names)))


def _take_weights(
    run: Run, source: Run, model: keras.Model, tokenizer: Tokenizer, is_chief: bool
) -> list[str]:
    """Loads what fits from the best weights of `source`.

    Returns:
        The paths of weights that begin anew, wholly or in the rows of some pieces.
    """
    file = source.checkpoints.find("best")
    pieces = _Pieces(Tokenizer(source.require_tokenizer()), tokenizer)
    anew = load_some(file, model, pieces.rows_of if pieces.differ else None)
    logger.info("weights: those of %s", source.path)
    if pieces.differ:
        logger.warning(
            "another tokenizer: %s of %s pieces are in %s too; embeddings of the others begin "
            "anew", f"{pieces.count:,}", f"{tokenizer.vocab_size:,}", source.path,
        )  # fmt: skip
    if anew:
        logger.warning("%s has none for %s, which begin anew", source.path, _listed(anew))
    if is_chief:
        origin = {
            "run": str(source.path),
            "task": source.config.task,
            "sha256": sha256(file),
            "evaluation": evaluation_of(source, file),
            "anew": anew,
            "pieces": [pieces.count, tokenizer.vocab_size],
        }
        write_text(run.origin, json.dumps(origin, indent=2) + "\n")
    in_part = [weight.path for weight in model.weights if has_pieces(weight.path)]
    return anew + in_part * (pieces.differ and not pieces.complete)


class _Pieces:
    """Word pieces that two tokenizers share.

    Attributes:
        differ: whether the tokenizers are different.
        count: number of shared pieces, of the side that has fewer.
        complete: whether all pieces of the new tokenizer are shared.
    """

    def __init__(self, old: Tokenizer, new: Tokenizer) -> None:
        self.differ = old.models != new.models
        self._rows = {side: _shared(old, new, side) for side in SIDES}
        self.count = min(len(here) for here, _ in self._rows.values())
        self.complete = self.count == new.vocab_size

    def rows_of(self, path: str, old: np.ndarray, new: np.ndarray) -> np.ndarray | None:
        """Returns a weight with the old values of shared pieces; None if it has no pieces."""
        if not has_pieces(path):
            return None
        is_target = path.startswith(("target_", "output_"))
        here, there = self._rows["target" if is_target else "source"]
        if path == _COLUMNS_OF_PIECES:
            new[:, here] = old[:, there]
        else:
            new[here] = old[there]
        return new


def has_pieces(path: str) -> bool:
    """Tells whether a weight has a row or a column for each piece."""
    return path == _COLUMNS_OF_PIECES or path.rpartition("/")[2] in _OF_PIECES


def _shared(old: Tokenizer, new: Tokenizer, side: SideName) -> tuple[list[int], list[int]]:
    """Returns the ids of the pieces that both have, in the new one and in the old one."""
    ids = {piece: number for number, piece in enumerate(_pieces_of(old, side))}
    shared = [(n, ids[each]) for n, each in enumerate(_pieces_of(new, side)) if each in ids]
    here, there = zip(*shared, strict=True)
    return list(here), list(there)


def _pieces_of(tokenizer: Tokenizer, side: SideName) -> Iterable[bytes]:
    return tokenizer.pieces(tf.range(tokenizer.vocab_size), side).numpy().tolist()


def _listed(names: Sequence[str], most: int = 5) -> str:
    more = f" and {len(names) - most:,} more" * (len(names) > most)
    return ", ".join(names[:most]) + more
