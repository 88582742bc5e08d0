"""Batches of sentences of like length."""

from collections.abc import Iterator, Sequence

import numpy as np

from tf_transformer.config import PAD_ID


def by_length(lengths: Sequence[int], positions: int) -> Iterator[list[int]]:
    """Groups rows of like length, longest first, of about `positions` positions each."""
    order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
    start = 0
    while start < len(order):
        size = max(1, positions // lengths[order[start]])
        yield order[start : start + size]
        start += size


def padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """int32 [B, longest], PAD after each row."""
    batch = np.full((len(rows), max(map(len, rows))), PAD_ID, "int32")
    for line, row in zip(batch, rows, strict=True):
        line[: len(row)] = row
    return batch
