"""Test sentences that a run has seen before, in its training text or in its dev text."""

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
    """Numbers of test sentences that are in the training text, or in the dev text."""

    sources: int
    references: int


def overlaps(
    run: Run,
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    tag: str | None = None,
) -> dict[Role, Overlap]:
    """Counts test sentences among those that the run was trained or chosen on.

    The tokenised text of the run is what is compared: equal pieces are equal sentences, but for
    what the tokenizer normalises, and pairs that filters have dropped do not count. A sentence
    without a piece does not count.

    Args:
        run: a run of text to text.
        sources: the test sentences.
        references: one or more sets of references; a line counts once.
        tag: text before each source.

    Raises:
        UserError: if the run has its tokenised text no more.
    """
    tokenizer = Tokenizer(run.require_tokenizer(), tag or "")
    source_ids = _with_eos(tokenizer.tokenize(tf.constant(list(sources))))
    target_ids = [
        _with_eos(tokenizer.tokenize_target(tf.constant(list(lines)))) for lines in references
    ]
    found = {}
    for role in _NAMES:
        corpus = EncodedCorpus.open(run.data / role)
        targets = [_seen(corpus, "target", rows) for rows in target_ids]
        found[role] = Overlap(
            int(_seen(corpus, "source", source_ids).sum()), int(np.any(targets, axis=0).sum())
        )
    return found


def describe(found: dict[Role, Overlap], number: int) -> str:
    """Describes what was found among `number` test sentences; "" if nothing."""
    parts = [
        f"{overlap.sources:,} sources and {overlap.references:,} references are in the "
        f"{_NAMES[role]}"
        for role, overlap in found.items()
        if overlap.sources or overlap.references
    ]
    return f"of {number:,} lines, {'; '.join(parts)}" if parts else ""


def _with_eos(ids: tf.RaggedTensor) -> list[np.ndarray]:
    return [np.append(row, EOS_ID).astype(np.int32) for row in ids.numpy()]


def _seen(corpus: EncodedCorpus, side: SideName, rows: Sequence[np.ndarray]) -> np.ndarray:
    """Tells of each row of ids whether it is a sentence of that side: bool [rows]."""
    seen = np.zeros(len(rows), bool)
    lengths = np.array([len(row) for row in rows])
    for length in set(lengths.tolist()) - {1}:  # EOS alone
        alike = np.flatnonzero(corpus.lengths(side) == length)
        known = {row.tobytes() for row in corpus.padded(side, alike, length)}
        for index in np.flatnonzero(lengths == length).tolist():
            seen[index] = rows[index].tobytes() in known
    return seen
