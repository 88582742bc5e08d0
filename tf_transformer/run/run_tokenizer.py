"""The tokenizer of a run: its own, a copy of the configured one, or trained on its text."""

import logging
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.config import NORMALIZATIONS, Config, DataConfig
from tf_transformer.data import builtin
from tf_transformer.data.encoded_corpus import id_dtype
from tf_transformer.data.subwords import target_model_path
from tf_transformer.data.text import SIDES, SideName
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer
from tf_transformer.run.run import Run

logger = logging.getLogger(__name__)

_AT_ONCE = 1 << 22  # ids in memory


def sized(config: Config) -> Config:
    """Returns the configuration with the vocabulary size that its tokenizer will have.

    That is the size of `data.tokenizer`, if set, and at most what the built-in corpus has.
    """
    size = config.model.vocab_size
    if config.data.tokenizer:
        size = Tokenizer(Path(config.data.tokenizer)).vocab_size
    elif not config.data.train and size > builtin.MOST_PIECES:
        message = "vocabulary: %s pieces instead of %s: the built-in corpus has no more"
        logger.info(message, f"{builtin.MOST_PIECES:,}", f"{size:,}")
        size = builtin.MOST_PIECES
    return config.replace({"model.vocab_size": size})


def load_tokenizer(
    run: Run,
    lines: Callable[[], Iterator[str]],
    symbols: Iterable[str] = (),
    side_lines: Callable[[SideName], Iterator[str]] | None = None,
) -> Tokenizer:
    """Returns the run's tokenizer; if there is none, copies the configured one or trains one.

    `lines` returns the text to train on; `symbols` are always in the vocabulary; `side_lines`
    returns the text of one side, to train a separate model for each. Raises UserError if the
    configured one cannot be used, none can be trained, or that of a trained run is gone.
    """
    data, vocab_size = run.config.data, run.config.model.vocab_size
    if run.tokenizer.exists():
        return Tokenizer(run.require_tokenizer())
    if run.checkpoints.state_steps():  # another tokenizer would not fit the weights
        raise UserError(f"{run.tokenizer} is gone. Restore it from a copy of the run.")
    target_model_path(run.tokenizer).unlink(missing_ok=True)  # from another tokenizer
    if data.tokenizer:
        if data.tokenizer_kind != DataConfig.tokenizer_kind:
            logger.warning(
                "data.tokenizer_kind=%s has no effect: the kind of %s is fixed",
                data.tokenizer_kind, data.tokenizer,
            )  # fmt: skip
        configured = Tokenizer(Path(data.tokenizer))
        if side_lines and "target" not in configured.models:
            raise UserError(
                "With data.separate_vocabularies, `data.tokenizer` must have a target model "
                f"beside it. Received: no {target_model_path(configured.path)}."
            )
        configured.copy(run.tokenizer)
    elif side_lines:
        logger.info("training two tokenizers of %s pieces", f"{vocab_size:,}")
        # The target's first: once `run.tokenizer` is there, both are.
        paths = (target_model_path(run.tokenizer), run.tokenizer)
        for side, path in zip(SIDES[::-1], paths, strict=True):
            train_configured_tokenizer(run.config, side_lines(side), path, symbols)
    else:
        logger.info("training a tokenizer of %s pieces", f"{vocab_size:,}")
        train_configured_tokenizer(run.config, lines(), run.tokenizer, symbols)
    return Tokenizer(run.tokenizer)


def trained_pieces(run: Run, tokenizer: Tokenizer) -> np.ndarray:
    """Returns which pieces training has seen in targets: bool [V].

    Without the encoded text, with other segmentations of it, and for a run that began with
    another's weights, these are also all pieces but single bytes and the unknown one.
    """
    data, spelt = run.config.data, tokenizer.spelt_pieces
    seen = np.zeros_like(spelt)
    folder = run.data / ("train-forms" if data.caps else "train")
    try:
        ids = np.memmap(folder / "target_ids.bin", id_dtype(len(seen)), mode="r")
        for begin in range(0, len(ids), _AT_ONCE):
            seen[ids[begin : begin + _AT_ONCE]] = True
    except (OSError, ValueError, IndexError):  # missing or damaged
        return spelt
    seen[tokenizer.slots("target")] = True  # which stand for spans of the text
    learned_more = data.subword_sampling or run.config.training.init_from
    return seen | spelt if learned_more else seen


def train_configured_tokenizer(
    config: Config, lines: Iterable[str], path: Path, symbols: Iterable[str] = ()
) -> None:
    """Trains the tokenizer that a configuration describes; see `train_tokenizer`."""
    train_tokenizer(
        lines,
        path,
        vocab_size=config.model.vocab_size,
        kind=config.data.tokenizer_kind,
        normalization=config.data.normalization or NORMALIZATIONS[0],
        character_coverage=config.data.character_coverage,
        symbols=symbols,
    )
