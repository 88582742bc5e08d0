"""The queue of a model, which makes batches of requests; and the server's metrics.

A batch holds the requests that arrived while all streams were computing. So no request waits
for others to arrive, and the busier the server, the larger its batches.

    queue, oldest first:       a: 9 tokens, b: 32 x 900 tokens, c: 12 tokens, d: 7 tokens
    any stream takes           a, c and d; the next one takes b, which is larger than a batch
    the last of several takes  a, c and d too, but never b: it is left for other requests
"""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import prometheus_client as prometheus

from tf_transformer.decoding.interface import WARNINGS, ClosedError
from tf_transformer.run.checkpoints import Arrays

logger = logging.getLogger(__name__)

MAX_ROWS = 32  # in a request, and in a batch
SHORT = 128  # tokens; longer rows share no batch with shorter ones, which they would widen
_BYTES = 16  # for each token that the model takes; a longer text is long without counting
_LATENCIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 24, 32)


class QueueFullError(Exception):
    """The queue has no room for another request."""


class BatchError(Exception):
    """The batch of a request could not be computed."""


class Telemetry:
    """Prometheus metrics of one server, named `tf_transformer_...`, and of its process."""

    def __init__(self) -> None:
        self._registry = registry = prometheus.CollectorRegistry()
        prometheus.ProcessCollector(registry=registry)
        name = "tf_transformer"
        counter = partial(prometheus.Counter, namespace=name, registry=registry)
        gauge = partial(prometheus.Gauge, namespace=name, registry=registry)
        histogram = partial(
            prometheus.Histogram, namespace=name, registry=registry, buckets=_LATENCIES
        )
        # An endpoint is one of a few names, never text from a client.
        self.requests = counter("requests", "Answers.", ["endpoint", "status"])
        self.refused = counter("refused", "Requests that were not computed.", ["reason"])
        text = "Time from a complete request to its answer."
        self.request_seconds = histogram("request_seconds", text, ["endpoint"])
        self.waiting_rows = gauge(
            "waiting_rows", "Rows in the queue, but for documents'.", ["model"]
        )
        self.batch_rows = histogram("batch_rows", "Rows of a batch.", buckets=_ROWS)
        self.batch_seconds = histogram("batch_seconds", "Time to compute a batch.")
        self.tokens_read = counter("tokens_read", "Tokens of queued requests.")
        self.tokens_written = counter("tokens_written", "Tokens of answers that count them.")
        self.doubtful = counter("doubtful", "Translations that look wrong.", ["reason"])
        for reason in WARNINGS:  # an alert must see the first increase
            self.doubtful.labels(reason)
        self.version = gauge("version", "The loaded version; 0: none.", ["model"])

    def page(self) -> bytes:
        """Returns all metrics in Prometheus's text format."""
        return prometheus.generate_latest(self._registry)


class TokenCounter:
    """Counts tokens as the graph does, with the tokenizers stored in it.

    Without a model card, the limits are taken to be those of a default export.
    """

    def __init__(self, engine: Any) -> None:
        self.decoding, self.longest_trained = engine.decoding, engine.longest_trained
        _, self.longest = engine.limits(engine.decoding)  # tokens in a row, EOS included
        # Maximum positions computed together: rows times the longest of them.
        self.positions = max(engine.decoding.batch_tokens // engine.decoding.beam_size, 1)
        self._engine = engine

    def read(self, inputs: Mapping[str, np.ndarray]) -> list[int]:
        """Returns the tokens, EOS included, of each text and row of ids, up to the limit."""
        sizes: list[int] = []
        for values in inputs.values():
            if values.dtype == object:
                sizes += map(self.count, values)
            elif values.ndim == 2:
                sizes += [values.shape[1]] * len(values)
        return [min(size, self.longest) for size in sizes]

    def written(self, outputs: Arrays) -> int:
        """Returns the tokens of an answer's translations, or of the texts it scored."""
        if "num_tokens" in outputs:
            return int(outputs["num_tokens"].sum())
        names = outputs.keys() & {"translation", "translations"}
        return sum(self.count(text) for name in names for text in outputs[name].flat)

    def count(self, text: bytes) -> int:
        """Returns the tokens of a text, EOS included, up to about the limit."""
        if len(text) > _BYTES * self.longest:
            return self.longest
        return self._engine.count_tokens(text)


@dataclass(eq=False)
class _Request:
    kind: tuple  # a batch is of one kind: see `submit`
    inputs: Mapping[str, np.ndarray]
    rows: int
    longest: int
    is_long: bool
    is_document: bool
    seconds: float  # to compute it
    until: float  # nobody waits for the answer after this time
    answer: Future = field(default_factory=Future)


class RequestQueue:
    """A queue of requests, emptied by `streams` threads that `run` the signatures of a model.

    A request is long if it has more positions than the model computes together, so that it is a
    batch of its own and takes longer than others. There are at most `max_waiting` rows in the
    queue; an empty queue takes any request. Batches of documents do not count, and wait as long
    as it takes. While other requests wait too, every other batch computed is a document's.
    """

    def __init__(
        self,
        run: Callable[..., Arrays],
        streams: int,
        counter: TokenCounter,
        telemetry: Telemetry,
        max_waiting: int = 256,
    ) -> None:
        self._run, self._counter, self._telemetry = run, counter, telemetry
        self._max_waiting, self._refuses = max_waiting, False
        self._queue: list[_Request] = []
        self._changed = threading.Condition()
        self._after_document = False  # whether the last batch taken was a document's
        last = streams - 1
        self._threads = [
            threading.Thread(target=self._work, args=[i == last > 0], daemon=True)
            for i in range(streams)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def alive(self) -> bool:
        """True while the threads are running: until `refuse`, unless one fails."""
        return all(thread.is_alive() for thread in self._threads)

    @property
    def waiting(self) -> int:
        """The number of rows in the queue, without those of documents."""
        with self._changed:
            self._forget_cancelled()
            return sum(one.rows for one in self._queue if not one.is_document)

    def _forget_cancelled(self) -> None:
        self._queue = [one for one in self._queue if not one.answer.cancelled()]

    def submit(
        self,
        signature: str,
        inputs: Mapping[str, np.ndarray],
        seconds: float,
        is_document: bool = False,
    ) -> Future[Arrays]:
        """Queues a request; returns a future of its outputs, which the client may cancel.

        The client waits `seconds` for arrays that passed `rest.parse_request`; that of a
        document waits until they are computed, for which they have this time. Raises
        QueueFullError, or ClosedError if requests are no longer accepted.
        """
        sizes = self._counter.read(inputs)
        rows, longest = len(next(iter(inputs.values()))), max(sizes, default=1)
        is_long = rows * longest > self._counter.positions
        widths = [values.shape[1:] for values in inputs.values()]
        kind = (signature, is_document, longest > SHORT, widths)
        until = float("inf") if is_document else time.monotonic() + seconds
        request = _Request(kind, inputs, rows, longest, is_long, is_document, seconds, until)
        with self._changed:
            if self._refuses:
                raise ClosedError
            waiting = self.waiting
            if waiting and not is_document and waiting + rows > self._max_waiting:
                raise QueueFullError
            self._queue.append(request)
            self._changed.notify_all()
        self._telemetry.tokens_read.inc(sum(sizes))
        return request.answer

    def refuse(self, cancel: bool = False) -> None:
        """Stops accepting requests; queued ones are still computed, unless cancelled."""
        with self._changed:
            self._refuses = True
            for request in self._queue if cancel else ():
                request.answer.cancel()
            self._changed.notify_all()

    def close(self, seconds: float) -> None:
        """Cancels queued requests, and waits at most `seconds` for running batches."""
        self.refuse(cancel=True)
        end = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _work(self, only_short: bool) -> None:
        try:
            while batch := self._next_batch(only_short):
                self._compute(batch)
        except BaseException:
            self.refuse(cancel=True)  # nobody would answer
            raise

    def _next_batch(self, only_short: bool) -> list[_Request]:
        """Waits for requests, and marks them as running; returns [] once there are no more."""
        with self._changed:
            while True:
                taken = self._take(only_short)
                batch = [one for one in taken if one.answer.set_running_or_notify_cancel()]
                if batch or (self._refuses and not taken):
                    return batch
                if not taken:
                    self._changed.wait()

    def _take(self, only_short: bool) -> list[_Request]:
        """Takes the oldest request that a stream may take, and those that fit beside it.

        Documents and other requests take turns.
        """
        self._forget_cancelled()
        able = [one for one in self._queue if not (only_short and one.is_long)]
        able.sort(key=lambda one: one.is_document == self._after_document)
        if not able:
            return []
        first, self._after_document = able[0], able[0].is_document
        batch, rows, longest = [first], first.rows, first.longest
        for one in self._queue:
            more, most = rows + one.rows, max(longest, one.longest)
            fits = more <= MAX_ROWS and more * most <= self._counter.positions
            if one is not first and one.kind == first.kind and fits:
                batch.append(one)
                rows, longest = more, most
        self._queue = [one for one in self._queue if one not in batch]
        return batch

    def _compute(self, batch: list[_Request]) -> None:
        """Answers a batch; if that fails, so do all its requests."""
        try:
            answers = self._outputs(batch)
        except BaseException as error:  # even SystemExit must not end the thread
            if not isinstance(error, TimeoutError | ClosedError):
                logger.error("a batch of %d requests failed", len(batch), exc_info=error)
                error = BatchError()
            for request in batch:
                request.answer.set_exception(error)
        else:
            for request, outputs in zip(batch, answers, strict=True):
                request.answer.set_result(outputs)

    def _outputs(self, batch: list[_Request]) -> list[Arrays]:
        signature, names = batch[0].kind[0], batch[0].inputs
        inputs = {name: np.concatenate([one.inputs[name] for one in batch]) for name in names}
        start = time.monotonic()
        timeout = max(min(one.until - start, one.seconds) for one in batch)
        outputs = self._run(signature, inputs, timeout=timeout)
        ends = np.cumsum([one.rows for one in batch]).tolist()
        self._telemetry.batch_rows.observe(ends[-1])
        self._telemetry.batch_seconds.observe(time.monotonic() - start)
        if any(len(values) != ends[-1] for values in outputs.values()):
            raise ValueError(f"Every output of {signature} must have {ends[-1]} rows.")
        return [
            {name: values[end - one.rows : end] for name, values in outputs.items()}
            for one, end in zip(batch, ends, strict=True)
        ]
