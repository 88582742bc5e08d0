"""Requests that come at the same time are computed together.

A batch is what has come in while the one before was computed: nothing waits for company, and
the busier the server, the larger its batches.
"""

import threading
from collections import deque
from collections.abc import Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field

import numpy as np

from tf_transformer.config import PAD_ID
from tf_transformer.serving.session import Arrays, BadRequestError, SavedModelSession


class QueueFullError(Exception):
    """So much waits already that one more request is refused."""


@dataclass(eq=False)
class _Waiting:
    signature: str
    inputs: Mapping[str, np.ndarray]
    rows: int
    answer: Future = field(default_factory=Future)


class Batcher:
    """A queue in front of a session, emptied by one thread, since a batch takes all cores.

    Args:
        session: what computes.
        max_rows: the most rows of a batch, and of a request.
        max_waiting: the most rows that may wait.
        deadline: seconds after which a batch is ended with TimeoutError; None for never.
    """

    def __init__(
        self,
        session: SavedModelSession,
        max_rows: int = 32,
        max_waiting: int = 256,
        deadline: float | None = None,
    ) -> None:
        self._session = session
        self._deadline = deadline
        self.max_rows = max_rows
        self._max_waiting = max_waiting
        self._queue: deque[_Waiting] = deque()
        self._changed = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._work, name="batcher", daemon=True)
        self._thread.start()

    def submit(self, signature: str, inputs: Mapping[str, np.ndarray]) -> Future:
        """A future of the outputs or of the error; one cancelled in time is not computed.

        Args:
            signature: its name.
            inputs: arrays as the signature takes them, see `session.checked`.

        Raises:
            BadRequestError: if the inputs have different numbers of rows, or too many.
            QueueFullError: if too much waits.
        """
        counts = {len(values) for values in inputs.values()}
        if len(counts) != 1:
            raise BadRequestError("All inputs must have the same number of rows.")
        (rows,) = counts
        if rows > self.max_rows:
            raise BadRequestError(
                f"A request must have at most {self.max_rows} rows. Received: {rows}."
            )
        one = _Waiting(signature, inputs, rows)
        with self._changed:
            waiting = sum(other.rows for other in self._wanted())
            if self._closed or waiting + rows > self._max_waiting:
                raise QueueFullError
            self._queue.append(one)
            self._changed.notify()
        return one.answer

    def close(self) -> None:
        """Ends the thread after the batch it computes; what still waits is cancelled."""
        with self._changed:
            self._closed = True
            for one in self._queue:
                one.answer.cancel()
            self._queue.clear()
            self._changed.notify()
        self._thread.join()

    def _work(self) -> None:
        while batch := self._next_batch():
            running = [one for one in batch if one.answer.set_running_or_notify_cancel()]
            if running:
                self._answer(running)

    def _next_batch(self) -> list[_Waiting]:
        """The oldest request and others of its signature; nothing once closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._wanted() or self._closed)
            batch: list[_Waiting] = []
            left: deque[_Waiting] = deque()
            for one in self._queue:
                alike = not batch or one.signature == batch[0].signature
                room = sum(other.rows for other in batch) + one.rows <= self.max_rows
                (batch if alike and room else left).append(one)
            self._queue = left
            return batch

    def _wanted(self) -> deque[_Waiting]:
        """The queue, rid of what was given up."""
        given_up = [one for one in self._queue if one.answer.cancelled()]
        for one in given_up:
            one.answer.set_running_or_notify_cancel()  # for whoever waits for several
            self._queue.remove(one)
        return self._queue

    def _answer(self, batch: list[_Waiting]) -> None:
        try:
            signature, inputs = batch[0].signature, _merged(batch)
            outputs = self._session.run(signature, inputs, timeout=self._deadline)
        except Exception as error:  # whatever it is, those who asked must hear of it
            if isinstance(error, BadRequestError) and len(batch) > 1:
                for one in batch:  # not to blame the others
                    self._answer([one])
                return
            for one in batch:
                one.answer.set_exception(error)
            return
        start = 0
        for one in batch:
            rows = slice(start, start + one.rows)
            one.answer.set_result({name: values[rows] for name, values in outputs.items()})
            start += one.rows


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
