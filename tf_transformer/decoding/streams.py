"""Streams: batches of sentences computed at the same time, and the threads that they share."""

import math
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from tf_transformer.base.parallel import at_once, usable_cores
from tf_transformer.config import PAD_ID

if TYPE_CHECKING:  # `--help` waits for no NumPy
    import numpy as np

Progress: TypeAlias = Callable[[int], None]  # takes the number of sentences done so far
Result = TypeVar("Result")


def in_batches(
    lengths: Sequence[int],
    positions: int,
    compute: Callable[[list[int]], Result],
    progress: Progress | None = None,
    *,
    streams: int | None = None,
    most_rows: int = sys.maxsize,
) -> Iterator[tuple[list[int], Result]]:
    """Yields the row indices of each batch, and what `compute` returns for them.

    At most `streams` batches (by default as many as the cores allow, see `streams_for`) are
    computed at the same time, each in a thread, and share `positions`, a limit of
    `by_length`, as `most_rows` is. `progress` is called when the caller has finished a batch.
    """
    streams = streams_for(len(lengths), streams)
    batches = by_length(lengths, positions // streams, most_rows)
    size = min(math.ceil(len(lengths) / streams), most_rows)
    if streams > 1 and size * max(lengths) <= positions // streams:
        order = _longest_first(lengths)
        batches = (order[start : start + size] for start in range(0, len(order), size))
    done = 0
    for rows, result in at_once(batches, compute, streams):
        yield rows, result
        done += len(rows)
        if progress:
            progress(done)


def by_length(
    lengths: Sequence[int], positions: int, most_rows: int = sys.maxsize
) -> Iterator[list[int]]:
    """Yields batches of at most `most_rows` row indices of similar length, longest first.

    A batch's rows times its longest row are at most `positions`, unless it is a single row.
    """
    order, start = _longest_first(lengths), 0
    while start < len(order):
        size = min(max(1, positions // lengths[order[start]]), most_rows)
        yield order[start : start + size]
        start += size


def _longest_first(lengths: Sequence[int]) -> list[int]:
    return sorted(range(len(lengths)), key=lambda row: -lengths[row])


def padded(rows: Sequence["np.ndarray"]) -> "np.ndarray":
    """Returns the rows as int32 [B, longest], padded with PAD at the end."""
    import numpy as np

    batch = np.full((len(rows), max(map(len, rows))), PAD_ID, "int32")
    for line, row in zip(batch, rows, strict=True):
        line[: len(row)] = row
    return batch


_MAX_STREAMS = 4  # each needs memory, and more streams mean smaller batches
# Of forced passes, which the documents of a server compute beside its queue: so many batches of
# all threads are computed at a time, each with logits [B, T, V] or an interpreter.
TURNS = threading.Semaphore(_MAX_STREAMS)
_MAX_LITE_THREADS = 4
_MAX_LITE_BEAMS = 64  # of a wide model: more need memory, and are no faster
_WIDE = 512  # `d_model` from which a step of LiteRT is worth waking threads for


def use_threads(threads: int | None = None) -> None:
    """Sets the threads of an operation, if TensorFlow has not computed in this process yet.

    The default is the streams' share of the cores; with a GPU, which computes one stream, it is
    TensorFlow's number.
    """
    import tensorflow as tf

    if threads is None and tf.config.list_physical_devices("GPU"):
        return
    cores = usable_cores()
    with suppress(RuntimeError):  # TensorFlow has computed
        tf.config.threading.set_intra_op_parallelism_threads(
            threads or cores // min(_MAX_STREAMS, cores)
        )


def lite_threads(width: int) -> int:
    """Returns the threads of an operation in LiteRT for a model of `d_model` = `width`."""
    return min(_MAX_LITE_THREADS, usable_cores()) if width >= _WIDE else 1


def lite_beams(heads: int, key_dim: int) -> int:
    """Returns the most beams in a batch in LiteRT for a model with such attention."""
    return _MAX_LITE_BEAMS if heads * key_dim >= _WIDE else sys.maxsize


def most_streams(threads: int | None = None) -> int:
    """Returns how many batches the cores can compute at the same time.

    `threads`, of an operation, is by default TensorFlow's present number; with a GPU, the
    default is one batch at a time.
    """
    cores = usable_cores()
    if threads is None:
        import tensorflow as tf

        if tf.config.list_physical_devices("GPU"):
            return 1
        threads = tf.config.threading.get_intra_op_parallelism_threads() or cores
    return max(1, min(cores // threads, _MAX_STREAMS))


def streams_for(sentences: int, most: int | None = None) -> int:
    """Returns the number of batches to split sentences into, at most `most`, or `most_streams`.

    Each has at least four sentences, since a few cost hardly more than one.
    """
    parts = sentences // 4
    return max(1, min(most or most_streams(), parts)) if parts > 1 else 1
