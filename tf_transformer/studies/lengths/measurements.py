"""BLEU by the length of the source."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from tf_transformer.data.encoded import EncodedCorpus
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import Interval, bleu_interval
from tf_transformer.progress import ProgressBars
from tf_transformer.run import Run

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Bucket:
    """Sentences whose source has `first` to `last` pieces; `rows` are their indices."""

    first: int
    last: int
    rows: list[int]

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


@dataclass(frozen=True)
class LengthCurve:
    """A run's BLEU by the length of the source.

    Attributes:
        label: name of the run.
        intervals: BLEU of each bucket.
        longest: pieces of the longest source in its training; None if unknown.
        limit: pieces at which it cuts a source.
    """

    label: str
    intervals: Sequence[Interval]
    longest: int | None
    limit: int

    @property
    def reach(self) -> str:
        """`longest` in words."""
        return "an unknown length" if self.longest is None else str(self.longest)


def buckets(lengths: Sequence[int], width: int, least: int) -> list[Bucket]:
    """Groups sentences by length: 1 to width, width + 1 to 2 width, and so on.

    Args:
        lengths: pieces of each source, at least 1.
        width: of a bucket, in pieces.
        least: fewest sentences in a bucket; a smaller one is merged with the next, and the
            last with the one before. Edges stay multiples of the width, except the last,
            which is the longest sentence.

    Returns:
        Buckets in order of length; only one if there are fewer than `least` sentences.
    """
    result: list[Bucket] = []
    first, rows, longest = 1, [], max(lengths)
    for last in range(width, longest + width, width):
        rows += [row for row, length in enumerate(lengths) if last - width < length <= last]
        if len(rows) >= least:
            result.append(Bucket(first, min(last, longest), rows))
            first, rows = last + 1, []
    if rows and result:
        before = result.pop()
        first, rows = before.first, [*before.rows, *rows]
    if rows:
        result.append(Bucket(first, longest, rows))
    return result


def buckets_of(
    runs: Sequence[Run], sources: Sequence[str], width: int, least: int
) -> list[Bucket]:
    """Groups sentences by pieces of the first run's tokenizer; warns if another's differs."""
    first, *others = [Tokenizer(run.require_tokenizer()) for run in runs]
    if any(other.models != first.models for other in others):
        logger.warning("the tokenizers differ: lengths are in pieces of %s", runs[0].path)
    pieces = first.tokenize(tf.constant(sources)).row_lengths().numpy() + 1  # and EOS
    return buckets(pieces.tolist(), width, least)


def measure_run(
    run: Run,
    translator: BatchTranslator,
    sources: Sequence[str],
    references: Sequence[str],
    groups: Sequence[Bucket],
) -> LengthCurve:
    """Translates with a run and scores each bucket."""
    name = str(run.path)
    with ProgressBars(len(sources)) as bars:
        translations = translator.translate(
            sources, lambda done: bars(f"{name}: translated", done)
        )
    hypotheses = [best.text for best, *_ in translations]
    intervals = bleu_by_bucket(groups, hypotheses, references)
    longest, limit = _longest_in_training(run), translator.codec.source_limit
    return LengthCurve(name, intervals, longest, limit)


def bleu_by_bucket(
    groups: Sequence[Bucket], hypotheses: Sequence[str], references: Sequence[str]
) -> list[Interval]:
    """Computes BLEU of the sentences of each bucket."""
    return [
        bleu_interval(
            [hypotheses[row] for row in group.rows], [references[row] for row in group.rows]
        )
        for group in groups
    ]


def _longest_in_training(run: Run) -> int | None:
    """Returns the pieces of the longest source; None without the tokenised corpus."""
    try:
        return int(EncodedCorpus.open(run.data / "train").source_lengths.max())
    except UserError:
        return None
