"""Overlap of test sentences with a run's training text or dev text."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID
from tf_transformer.data.corpus import SideName
from tf_transformer.data.encoded import EncodedCorpus
from tf_transformer.data.texts import Role
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.run import Run

_NAMES: dict[Role, str] = {"train": "training text", "valid": "dev text"}


@dataclass(frozen=True)
class Overlap:
    """Numbers of test sentences that occur in the training text, or in the dev text."""

    sources: int
    references: int


def overlaps(
    run: Run,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    tag: str | None = None,
) -> dict[Role, Overlap]:
    """Counts the test sentences that occur in the run's training text or dev text.

    Sentences are compared as token ids, so differences that the tokenizer normalises do not
    count, and training pairs that were filtered out are not found. Sentences without a token
    are ignored.

    Args:
        run: a text-to-text run.
        sources: the test sentences.
        references: one or more sets of references; a line counts once if any of them occurs.
        tag: text to put before each source.

    Raises:
        UserError: if the run no longer has its tokenised text.
    """
    tokenizer = Tokenizer(run.require_tokenizer(), tag or "")
    source_ids = _with_eos(tokenizer.tokenize(tf.constant(list(sources))))
    target_ids = [
        _with_eos(tokenizer.tokenize_target(tf.constant(list(lines)))) for lines in references
    ]
    result = {}
    for role in _NAMES:
        corpus = EncodedCorpus.open(run.data / role)
        targets = [_seen(corpus, "target", rows) for rows in target_ids]
        result[role] = Overlap(
            int(_seen(corpus, "source", source_ids).sum()), int(np.any(targets, axis=0).sum())
        )
    return result


def describe(overlaps: dict[Role, Overlap], number: int) -> str:
    """Describes the overlaps of `number` test sentences; "" if there are none."""
    parts = [
        f"{overlap.sources:,} sources and {overlap.references:,} references are in the "
        f"{_NAMES[role]}"
        for role, overlap in overlaps.items()
        if overlap.sources or overlap.references
    ]
    return f"of {number:,} lines, {'; '.join(parts)}" if parts else ""


def _with_eos(ids: tf.RaggedTensor) -> list[np.ndarray]:
    return [np.append(row, EOS_ID).astype(np.int32) for row in ids.numpy()]


def _seen(corpus: EncodedCorpus, side: SideName, rows: Sequence[np.ndarray]) -> np.ndarray:
    """Tells for each row of ids whether it is a sentence on that side: bool [rows]."""
    seen = np.zeros(len(rows), bool)
    lengths = np.array([len(row) for row in rows])
    for length in set(lengths.tolist()) - {1}:  # EOS alone
        candidates = np.flatnonzero(corpus.lengths(side) == length)
        known = {row.tobytes() for row in corpus.padded(side, candidates, length)}
        for index in np.flatnonzero(lengths == length).tolist():
            seen[index] = rows[index].tobytes() in known
    return seen
