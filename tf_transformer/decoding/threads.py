"""Threads of decoding: batches computed at the same time, and threads that share an operation.

Several batches ("streams") use the cores better than several threads do, because only the large
operations of a step can be shared. So the commands that decode compute as many streams as there
are cores, at most four, and each operation has its stream's share of the cores.
"""

import math
import os
import sys
from contextlib import suppress
from pathlib import Path

_MAX_STREAMS = 4  # each needs memory, and more streams mean smaller batches
_MAX_LITE_THREADS = 4
_WIDE = 512  # `d_model` from which a step of LiteRT is worth waking threads for
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container, by Linux control groups


def use_threads(threads: int | None = None) -> None:
    """Sets the threads of an operation, if TensorFlow has not computed in this process yet.

    Args:
        threads: the number; by default the streams' share of the cores. A GPU keeps
            TensorFlow's number, since it computes one stream.
    """
    import tensorflow as tf

    if threads is None and tf.config.list_physical_devices("GPU"):
        return
    cores = _cores()
    with suppress(RuntimeError):  # TensorFlow has computed
        tf.config.threading.set_intra_op_parallelism_threads(
            threads or cores // min(_MAX_STREAMS, cores)
        )


def lite_threads(width: int) -> int:
    """Returns the threads of an operation in LiteRT for a model of `d_model` = `width`."""
    return min(_MAX_LITE_THREADS, _cores()) if width >= _WIDE else 1


def most_streams(threads: int | None = None) -> int:
    """Returns how many batches the cores can compute at the same time.

    Args:
        threads: threads per operation; by default TensorFlow's present number, and one batch at
            a time with a GPU.
    """
    cores = _cores()
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


def _cores() -> int:
    """Returns the number of cores that this process may use."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # without a limit the file begins with "max"
        microseconds, period = map(int, _CPU_LIMIT.read_text("utf-8").split())
        cores = min(cores, math.ceil(microseconds / period))
    return cores
