"""Requests that come at the same time are computed together.

A batch is what has come in while the one before was computed: nothing waits for company, and
the busier the server, the larger its batches.
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
    """So much waits already that one more request is refused."""


@dataclass(frozen=True)
class BatchLimits:
    """Limits of a batch, of the queue and of the time for an answer.

    Attributes:
        rows: the most rows of a batch, and of a request.
        positions: the most positions of a batch, its rows times the longest; one request may
            have more.
        waiting: the most rows that may wait.
        deadline: seconds after which a request is ended with TimeoutError, computed or not.
    """

    rows: int = 32
    positions: int = 1_024
    waiting: int = 256
    deadline: float = float("inf")


@dataclass(eq=False)
class _Waiting:
    signature: str
    inputs: Mapping[str, np.ndarray]
    rows: int
    longest: int
    until: float  # of time.monotonic
    answer: Future = field(default_factory=Future)


class Batcher:
    """A queue in front of a session, emptied by one thread, since a batch takes all cores.

    A batch that fails is computed again a request at a time, so that an error or a deadline
    hits only the request that causes it.

    Args:
        session: what computes.
        limits: of batches and of the queue.
    """

    def __init__(self, session: SavedModelSession, limits: BatchLimits | None = None) -> None:
        self._session = session
        self.limits = limits or BatchLimits()
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    @property
    def alive(self) -> bool:
        """Whether requests are computed: until `close`, unless the thread fails."""
        return self._thread.is_alive()

    def submit(
        self, signature: str, inputs: Mapping[str, np.ndarray], longest: int = 1
    ) -> Future:
        """A future of the outputs or of the error; one cancelled in time is not computed.

        Args:
            signature: its name.
            inputs: arrays as the signature takes them, see `session.checked`.
            longest: the tokens of the longest row.

        Raises:
            BadRequestError: if the inputs have different numbers of rows, or too many.
            QueueFullError: if too much waits.
            ClosedError: if nothing is computed any more.
        """
        rows = row_count(inputs, self.limits.rows)
        until = time.monotonic() + self.limits.deadline
        one = _Waiting(signature, inputs, rows, longest, until)
        with self._changed:
            if self._closed:
                raise ClosedError
            if sum(other.rows for other in self._wanted()) + rows > self.limits.waiting:
                raise QueueFullError
            self._queue.append(one)
            self._changed.notify()
        return one.answer

    def refuse(self) -> None:
        """Takes no more requests; those that wait are still computed."""
        with self._changed:
            self._closed = True
            self._changed.notify()

    def close(self, seconds: float | None = None) -> None:
        """Cancels what waits; returns after the batch under way, or some seconds."""
        self.refuse()
        self._cancel_all()
        self._thread.join(seconds)

    def _cancel_all(self) -> None:
        with self._changed:
            for one in self._queue:
                one.answer.cancel()
            self._queue.clear()

    def _work(self) -> None:
        try:
            while batch := self._next_batch():
                running = [one for one in batch if one.answer.set_running_or_notify_cancel()]
                if running:
                    self._answer(running)
        finally:
            self.refuse()  # also after an error of ours, for nobody would answer
            self._cancel_all()

    def _next_batch(self) -> list[_Waiting]:
        """The oldest request and others of its signature; nothing once closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted() or self._closed)
            batch: list[_Waiting] = []
            left: deque[_Waiting] = deque()
            for one in self._queue:
                (batch if self._fits(batch, one) else left).append(one)
            self._queue = left
            return batch

    def _fits(self, batch: list[_Waiting], one: _Waiting) -> bool:
        if not batch:
            return True
        together = [*batch, one]
        rows = sum(other.rows for other in together)
        positions = rows * max(other.longest for other in together)
        return (
            one.signature == batch[0].signature
            and rows <= self.limits.rows
            and positions <= self.limits.positions
        )

    def _wanted(self) -> deque[_Waiting]:
        """The queue, rid of what was given up."""
        given_up = [one for one in self._queue if one.answer.cancelled()]
        for one in given_up:
            one.answer.set_running_or_notify_cancel()  # for whoever waits for several
            self._queue.remove(one)
        return self._queue

    def _answer(self, batch: list[_Waiting]) -> None:
        """Sets the answers; those who asked must hear of any error, whatever it is."""
        company = len(batch) > 1
        try:
            outputs = self._computed(batch, shares=2 if company else 1)
        except BaseException as error:
            if not company or isinstance(error, ClosedError):
                for one in batch:
                    one.answer.set_exception(_as_exception(error))
                return
            if not isinstance(error, BadRequestError):
                reason = f"{type(error).__name__}: {error}".partition("\n")[0]
                logger.warning("a batch of %d is run singly: %s", len(batch), reason)
            self._answer_singly(batch)
        else:
            for one, own in zip(batch, outputs, strict=True):
                one.answer.set_result(own)

    def _answer_singly(self, batch: list[_Waiting]) -> None:
        """Each has an equal share of the time that is left, and what others leave of theirs."""
        for number, one in enumerate(batch):
            try:
                (outputs,) = self._computed([one], shares=len(batch) - number)
            except BaseException as error:
                one.answer.set_exception(_as_exception(error))
            else:
                one.answer.set_result(outputs)

    def _computed(self, batch: list[_Waiting], shares: int) -> list[Arrays]:
        """The outputs for each request, within a share of the time left to the oldest."""
        left = min(one.until for one in batch) - time.monotonic()
        if left <= 0:
            raise TimeoutError("the time for the answer is over")
        timeout = None if left == float("inf") else left / shares
        outputs = self._session.run(batch[0].signature, _merged(batch), timeout=timeout)
        ends = np.cumsum([one.rows for one in batch]).tolist()
        if any(len(values) != ends[-1] for values in outputs.values()):
            raise ValueError(f"{batch[0].signature} must have {ends[-1]} rows of each output.")
        return [
            {name: values[end - one.rows : end] for name, values in outputs.items()}
            for one, end in zip(batch, ends, strict=True)
        ]


def row_count(inputs: Mapping[str, np.ndarray], most: int) -> int:
    """The rows of a request; BadRequestError if its inputs disagree or it has too many."""
    counts = {len(values) for values in inputs.values()}
    if len(counts) != 1:
        raise BadRequestError("All inputs must have the same number of rows.")
    (rows,) = counts
    if rows > most:
        raise BadRequestError(f"A request must have at most {most} rows. Received: {rows}.")
    return rows


def _as_exception(error: BaseException) -> Exception:
    """What a thread that waits for an answer may be told: not to exit itself, for one."""
    if isinstance(error, Exception):
        return error
    return RuntimeError(f"the computation ended with {error!r}")


def _merged(batch: list[_Waiting]) -> Arrays:
    """The inputs one below the other, narrower ones padded with PAD."""
    return {name: _stacked([one.inputs[name] for one in batch]) for name in batch[0].inputs}


def _stacked(parts: list[np.ndarray]) -> np.ndarray:
    if parts[0].ndim == 2:
        width = max(part.shape[1] for part in parts)
        parts = [
            np.pad(part, [(0, 0), (0, width - part.shape[1])], constant_values=PAD_ID)
            for part in parts
        ]
    return np.concatenate(parts)
