"""Work for all cores, with the same results in the same order whatever their number."""

import math
import os
import pickle
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Self, TypeVar

from tf_transformer.base.errors import UserError

Item = TypeVar("Item")
Result = TypeVar("Result")

MOST_PROCESSES = 16  # more would wait for the one that reads and writes
_CPU_LIMIT = Path("/sys/fs/cgroup/cpu.max")  # of a container, by Linux control groups


def usable_cores() -> int:
    """Returns the number of cores that this process may use."""
    if sys.platform != "linux":
        return os.cpu_count() or 1
    cores = len(os.sched_getaffinity(0))
    with suppress(OSError, ValueError):  # without a limit the file begins with "max"
        microseconds, period = map(int, _CPU_LIMIT.read_text("utf-8").split())
        cores = min(cores, math.ceil(microseconds / period))
    return cores


def at_once(
    items: Iterable[Item], compute: Callable[[Item], Result], streams: int
) -> Iterator[tuple[Item, Result]]:
    """Yields items and their results, in order, computing `streams` of them at a time."""
    if streams == 1:
        for item in items:
            yield item, compute(item)
        return
    rest, waiting = iter(items), deque[tuple[Item, Future[Result]]]()
    with ThreadPoolExecutor(streams) as pool:
        try:
            waiting.extend(
                (one, pool.submit(compute, one)) for one in islice(rest, streams + 1)
            )
            while waiting:
                item, future = waiting.popleft()
                result = future.result()
                waiting.extend((one, pool.submit(compute, one)) for one in islice(rest, 1))
                yield item, result
        finally:  # also after an error
            pool.shutdown(cancel_futures=True)


class Processes:
    """A function that so many other processes compute, for `at_once`; with 1, this one does.

    For work in Python, of which a process does one piece at a time. Function, items and results
    are pickled. They are no forks, which would lack TensorFlow's threads, do not run the main
    script again, as those of `multiprocessing` would, and end with this one, however it ends.
    """

    def __init__(self, function: Callable[[Any], Any], number: int) -> None:
        self._function, self._idle = function, SimpleQueue[subprocess.Popen]()
        serve = f"import sys; sys.path[:] = {sys.path!r}; import {__name__} as p; p.serve()"
        words, pipe = [sys.executable, "-c", serve], subprocess.PIPE
        number = number if number > 1 else 0
        self.all = [subprocess.Popen(words, stdin=pipe, stdout=pipe) for _ in range(number)]
        for process in self.all:
            self._idle.put(process)
            with suppress(BrokenPipeError):  # its first item tells
                _send(process.stdin, function)

    def __call__(self, item: Any) -> Any:
        """Returns the function's result; UserError if the process that computes it ends."""
        if not self.all:
            return self._function(item)
        process = self._idle.get()
        try:
            _send(process.stdin, item)
            return pickle.load(process.stdout)  # type: ignore[arg-type]
        except (EOFError, OSError, pickle.UnpicklingError):
            raise UserError(
                f"A process that computes for this one has ended (status {process.wait()}), "
                "perhaps for lack of memory. Run the command again."
            ) from None
        finally:
            self._idle.put(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_) -> None:
        for process in self.all:
            process.kill()
            process.communicate()


def _send(stream: Any, item: Any) -> None:
    pickle.dump(item, stream, pickle.HIGHEST_PROTOCOL)
    stream.flush()


def serve() -> None:
    """Computes what arrives on stdin until it ends: a function, and then its items."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the other process decides
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the function prints is no answer
    with suppress(EOFError, BrokenPipeError):
        function = pickle.load(sys.stdin.buffer)
        while True:
            _send(answers, function(pickle.load(sys.stdin.buffer)))
