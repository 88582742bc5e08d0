"""BLEU by the length of the source."""

from collections.abc import Sequence
from dataclasses import dataclass

from tf_transformer.evaluation.bleu import Interval, bleu_interval


@dataclass(frozen=True)
class Bucket:
    """Sentences whose source has `first` to `last` pieces; `rows` are their numbers."""

    first: int
    last: int
    rows: list[int]

    def __str__(self) -> str:
        return f"{self.first}-{self.last}"


def buckets(lengths: Sequence[int], width: int, least: int) -> list[Bucket]:
    """Groups sentences by length: 1 to width, width + 1 to 2 width, and so on.

    Args:
        lengths: of the source of each sentence, in pieces, at least 1.
        width: of a bucket, in pieces.
        least: sentences in a bucket; where there are fewer it is joined with the longer ones
            after it, and the last with the one before. Their edges stay multiples of the
            width, but for the last, which ends at the longest sentence.

    Returns:
        Buckets in the order of length; one if all sentences are fewer than `least`.
    """
    found: list[Bucket] = []
    first, rows, longest = 1, [], max(lengths)
    for last in range(width, longest + width, width):
        rows += [row for row, length in enumerate(lengths) if last - width < length <= last]
        if len(rows) >= least:
            found.append(Bucket(first, min(last, longest), rows))
            first, rows = last + 1, []
    if rows and found:
        before = found.pop()
        first, rows = before.first, [*before.rows, *rows]
    if rows:
        found.append(Bucket(first, longest, rows))
    return found


def bleu_by_bucket(
    groups: Sequence[Bucket], hypotheses: Sequence[str], references: Sequence[str]
) -> list[Interval]:
    """BLEU of the sentences of each bucket."""
    return [
        bleu_interval(
            [hypotheses[row] for row in group.rows], [references[row] for row in group.rows]
        )
        for group in groups
    ]
