"""Batches from a file written by `contenders/batches.py`; needs only NumPy."""

from typing import NamedTuple

import numpy as np


class Arrays(NamedTuple):
    """Source, target and labels, each int32 [B, L]; 0 is padding."""

    source: np.ndarray
    target: np.ndarray
    labels: np.ndarray


def load_batches(path: str) -> list[Arrays]:
    """Reads the batches, shortest first."""
    with np.load(path) as file:
        count = len(file.files) // len(Arrays._fields)
        return [Arrays(*(file[f"{name}_{i}"] for name in Arrays._fields)) for i in range(count)]


def real_tokens(batches: list[Arrays]) -> dict[str, int]:
    """Counts target tokens without padding, and positions of both sides including padding."""
    return {
        "tokens": int(sum(np.count_nonzero(batch.labels) for batch in batches)),
        "positions": int(sum(batch.source.size + batch.target.size for batch in batches)),
    }
