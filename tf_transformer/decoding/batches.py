"""Batches of sentences of similar length, computed one after the other or several at once."""

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TypeAlias, TypeVar

import numpy as np

from tf_transformer.config import PAD_ID
from tf_transformer.decoding.threads import streams_for

Progress: TypeAlias = Callable[[int], None]  # takes the number of sentences done so far
Batch = TypeVar("Batch")
Result = TypeVar("Result")


def in_batches(
    lengths: Sequence[int],
    positions: int,
    compute: Callable[[list[int]], Result],
    progress: Progress | None = None,
    *,
    streams: int | None = None,
) -> Iterator[tuple[list[int], Result]]:
    """Yields the row indices of each batch, and what `compute` returns for them.

    Args:
        lengths: number of tokens of each row.
        positions: limit on the positions computed at a time, see `by_length`.
        compute: called with the row indices of a batch; from several threads, if there are
            several streams.
        progress: called when the caller has finished a batch.
        streams: maximum number of batches computed at the same time, which share `positions`;
            by default as many as the cores allow, see `threads`.
    """
    streams = streams_for(len(lengths), streams)
    batches = by_length(lengths, positions // streams)
    size = math.ceil(len(lengths) / streams)
    if streams > 1 and size * max(lengths) <= positions // streams:
        order = _longest_first(lengths)
        batches = (order[start : start + size] for start in range(0, len(order), size))
    done = 0
    for rows, result in at_once(batches, compute, streams):
        yield rows, result
        done += len(rows)
        if progress:
            progress(done)


def by_length(lengths: Sequence[int], positions: int) -> Iterator[list[int]]:
    """Yields batches, as lists of row indices of similar length, longest first.

    Args:
        lengths: number of tokens of each row.
        positions: limit on a batch's rows times its longest row; a batch has at least one row.
    """
    order, start = _longest_first(lengths), 0
    while start < len(order):
        size = max(1, positions // lengths[order[start]])
        yield order[start : start + size]
        start += size


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda row: -lengths[row])


def at_once(
    batches: Iterable[Batch], compute: Callable[[Batch], Result], streams: int
) -> Iterator[tuple[Batch, Result]]:
    """Yields batches and their results, in order, computing `streams` of them at a time."""
    if streams == 1:
        for batch in batches:
            yield batch, compute(batch)
        return
    rest, waiting = iter(batches), deque[tuple[Batch, Future[Result]]]()
    with ThreadPoolExecutor(streams) as pool:
        try:
            waiting.extend(
                (one, pool.submit(compute, one)) for one in islice(rest, streams + 1)
            )
            while waiting:
                batch, future = waiting.popleft()
                result = future.result()
                waiting.extend((one, pool.submit(compute, one)) for one in islice(rest, 1))
                yield batch, result
        finally:  # also after an error: batches that have not started are cancelled
            for _, future in waiting:
                future.cancel()


def padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """Returns the rows as int32 [B, longest], padded with PAD at the end."""
    batch = np.full((len(rows), max(map(len, rows))), PAD_ID, "int32")
    for line, row in zip(batch, rows, strict=True):
        line[: len(row)] = row
    return batch
