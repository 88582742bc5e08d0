"""Batches of sentences of similar length."""

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from tf_transformer.config import PAD_ID

Progress = Callable[[int], None]  # takes the number of sentences done so far


def by_length(
    lengths: Sequence[int], positions: int, progress: Progress | None = None
) -> Iterator[list[int]]:
    """Yields batches, as lists of row indices of similar length, longest first.

    Args:
        lengths: number of tokens of each row.
        positions: limit on a batch's rows times its longest row; a batch has at least one row.
        progress: called when the caller has finished a batch.
    """
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        size = max(1, positions // lengths[order[start]])
        rows = order[start : start + size]
        yield rows
        start += len(rows)
        if progress:
            progress(start)


def padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the rows as int32 [B, longest], padded with PAD at the end."""
    batch = np.full((len(rows), max(map(len, rows))), PAD_ID, "int32")
    for line, row in zip(batch, rows, strict=True):
        line[: len(row)] = row
    return batch
