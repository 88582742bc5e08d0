"""Batches of requests that arrive at about the same time.

A batch holds the requests that arrived while all streams were computing. So no request waits
for others to arrive, and the busier the server, the larger its batches.
"""

import logging
import threading
import time
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from tf_transformer.config import PAD_ID
from tf_transformer.serving.session import (
    Arrays,
    BadRequestError,
    ClosedError,
    SavedModelSession,
)

logger = logging.getLogger(__name__)


class QueueFullError(Exception):
    """The queue has no room for another request."""


@dataclass(frozen=True)
class BatchLimits:
    """Limits on batches, on the queue and on the time for an answer.

    Attributes:
        rows: maximum rows in a batch, and in a request.
        positions: maximum positions in a batch, its rows times its longest row; a single
            request may have more.
        waiting: maximum rows in the queue.
        deadline: seconds after which a request fails with TimeoutError.
    """

    rows: int = 32
    positions: int = 1_024
    waiting: int = 256
    deadline: float = float("inf")


class Observer:
    """Callbacks that batchers call from their threads; these do nothing."""

    def queued(self, tokens: int) -> None:
        """Called when a request is queued, with its number of tokens."""

    def computed(self, rows: int, seconds: float) -> None:
        """Called when a batch is computed, with its number of rows and the time it took."""


@dataclass(eq=False)
class _Request:
    signature: str
    inputs: Mapping[str, np.ndarray]
    rows: int
    longest: int
    until: float  # deadline in time.monotonic()
    answer: Future = field(default_factory=Future)


class Batcher:
    """A queue in front of a session, emptied by one or more threads.

    A batch that fails is computed again one request at a time, so that an error or a deadline
    affects only the request that causes it.

    Args:
        session: runs the batches.
        limits: limits of batches and of the queue.
        observer: notified of each batch.
        streams: number of batches computed at the same time.
    """

    def __init__(
        self,
        session: SavedModelSession,
        limits: BatchLimits,
        observer: Observer,
        streams: int = 1,
    ) -> None:
        self._session, self.limits, self._observer = session, limits, observer
        self._queue: deque[_Request] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [
            threading.Thread(target=self._work, name="batcher", daemon=True)
            for _ in range(streams)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """True while the threads are running: until `close`, unless one fails."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def waiting(self) -> int:
        """The number of rows in the queue."""
        with self._changed:
            return sum(request.rows for request in self._pending())

    def submit(
        self, signature: str, inputs: Mapping[str, np.ndarray], longest: int = 1
    ) -> Future:
        """Queues a request; returns a future of its outputs, which may be cancelled.

        Args:
            signature: name of the signature.
            inputs: arrays that passed `session.checked`, all with the same number of rows.
            longest: number of tokens in the longest row.

        Raises:
            QueueFullError: if the queue is full.
            ClosedError: if requests are no longer accepted.
        """
        rows = len(next(iter(inputs.values())))
        until = time.monotonic() + self.limits.deadline
        request = _Request(signature, inputs, rows, longest, until)
        with self._changed:
            if self._closed:
                raise ClosedError
            waiting = self.waiting
            if waiting and waiting + rows > self.limits.waiting:
                raise QueueFullError
            self._queue.append(request)
            self._changed.notify()
        return request.answer

    def refuse(self) -> None:
        """Stops accepting requests; queued ones are still computed."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def close(self, seconds: float | None = None) -> None:
        """Cancels queued requests, and waits at most `seconds` for running batches."""
        self.refuse()
        self._cancel_all()
        end = None if seconds is None else time.monotonic() + seconds
        for thread in self._threads:
            thread.join(None if end is None else max(0.0, end - time.monotonic()))

    def _cancel_all(self) -> None:
        with self._changed:
            for request in self._queue:
                request.answer.cancel()
            self._queue.clear()

    def _work(self) -> None:
        try:
            while batch := self._next_batch():
                running = [r for r in batch if r.answer.set_running_or_notify_cancel()]
                if running:  # half the time is reserved for answering several one by one
                    self._answer(running, shares=min(len(running), 2))
        finally:
            self.refuse()  # after an unexpected error too, since no thread would answer
            self._cancel_all()

    def _next_batch(self) -> list[_Request]:
        """Waits for a request; returns it with others that fit, or [] once closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._pending() or self._closed)
            batch: list[_Request] = []
            rest: deque[_Request] = deque()
            for request in self._queue:
                (batch if self._fits(batch, request) else rest).append(request)
            self._queue = rest
            return batch

    def _fits(self, batch: list[_Request], request: _Request) -> bool:
        if not batch:
            return True
        together = [*batch, request]
        rows = sum(other.rows for other in together)
        positions = rows * max(other.longest for other in together)
        return (
            request.signature == batch[0].signature
            and rows <= self.limits.rows
            and positions <= self.limits.positions
        )

    def _pending(self) -> deque[_Request]:
        """Removes cancelled requests from the queue, and returns it."""
        for request in [request for request in self._queue if request.answer.cancelled()]:
            request.answer.set_running_or_notify_cancel()  # wakes `concurrent.futures.wait`
            self._queue.remove(request)
        return self._queue

    def _answer(self, batch: list[_Request], shares: int) -> None:
        """Answers a batch within 1/`shares` of its remaining time; one by one if that fails."""
        try:
            outputs = self._computed(batch, shares)
        except BaseException as error:
            if len(batch) > 1 and not isinstance(error, ClosedError):
                self._answer_one_by_one(batch, error)
                return
            if not isinstance(error, Exception):
                # Such as SystemExit, which must not end a thread that waits for an answer.
                error = RuntimeError(f"the computation ended with {error!r}")
            for request in batch:
                request.answer.set_exception(error)
        else:
            for request, arrays in zip(batch, outputs, strict=True):
                request.answer.set_result(arrays)

    def _answer_one_by_one(self, batch: list[_Request], error: BaseException) -> None:
        """Answers requests one by one, each within an equal share of the remaining time."""
        if not isinstance(error, BadRequestError):
            reason = f"{type(error).__name__}: {error}".partition("\n")[0]
            logger.warning("rerunning %d requests one by one: %s", len(batch), reason)
        for number, request in enumerate(batch):
            self._answer([request], shares=len(batch) - number)

    def _computed(self, batch: list[_Request], shares: int) -> list[Arrays]:
        """Returns the outputs of each request, within 1/`shares` of the remaining time."""
        left = min(request.until for request in batch) - time.monotonic()
        if left <= 0:
            raise TimeoutError("the deadline for the answer has passed")
        timeout = None if left == float("inf") else left / shares
        signature, names = batch[0].signature, batch[0].inputs
        inputs = {name: _stacked([request.inputs[name] for request in batch]) for name in names}
        start = time.monotonic()
        outputs = self._session.run(signature, inputs, timeout=timeout)
        ends = np.cumsum([request.rows for request in batch]).tolist()
        self._observer.computed(ends[-1], time.monotonic() - start)
        if any(len(values) != ends[-1] for values in outputs.values()):
            raise ValueError(f"Every output of {signature} must have {ends[-1]} rows.")
        return [
            {name: values[end - request.rows : end] for name, values in outputs.items()}
            for request, end in zip(batch, ends, strict=True)
        ]


def _stacked(parts: list[np.ndarray]) -> np.ndarray:
    """Concatenates the rows of arrays; narrower matrices are padded with PAD."""
    if parts[0].ndim == 2:
        width = max(part.shape[1] for part in parts)
        parts = [
            np.pad(part, [(0, 0), (0, width - part.shape[1])], constant_values=PAD_ID)
            for part in parts
        ]
    return np.concatenate(parts)
