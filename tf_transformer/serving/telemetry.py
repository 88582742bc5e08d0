"""Metrics for Prometheus and an access log in JSON, for the operator of a server."""

import functools
import json
import sys
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, TextIO

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

from tf_transformer.serving.batcher import Observer

_LATENCIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 24, 32)


class Telemetry(Observer):
    """Metrics of one server, named `tf_transformer_...`, and of its process.

    Args:
        waiting: returns the rows in the queues by lane.
        versions: returns the numbers of the loaded versions.
    """

    def __init__(
        self, waiting: Callable[[], dict[str, int]], versions: Callable[[], list[int]]
    ) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter = functools.partial(Counter, namespace="tf_transformer", registry=registry)
        histogram = functools.partial(Histogram, namespace="tf_transformer", registry=registry)
        gauge = functools.partial(Gauge, namespace="tf_transformer", registry=registry)
        self._requests = counter(
            "requests", "Answers, by endpoint and status.", ["endpoint", "status"]
        )
        self._refused = counter(
            "refused", "Requests that were not computed, by reason.", ["reason"]
        )
        self._seconds = histogram(
            "request_seconds", "Time from a complete request to its answer.", ["endpoint"],
            buckets=_LATENCIES)  # fmt: skip
        self._batch_rows = histogram("batch_rows", "Rows of a batch.", buckets=_ROWS)
        self._batch_seconds = histogram(
            "batch_seconds", "Time to compute a batch.", buckets=_LATENCIES
        )
        self._read = counter("tokens_read", "Tokens of queued requests.")
        self._written = counter("tokens_written", "Tokens of answers that count them.")
        queued = gauge("waiting_rows", "Rows in a queue.", ["lane"])
        for lane in ("short", "long"):
            rows = functools.partial(lambda name: waiting()[name], lane)
            queued.labels(lane).set_function(rows)
        newest = gauge("version", "The newest loaded version; 0: none.")
        newest.set_function(lambda: max(versions(), default=0))

    def queued(self, tokens: int) -> None:
        """Counts the tokens of a request."""
        self._read.inc(tokens)

    def computed(self, rows: int, seconds: float) -> None:
        """Counts a batch."""
        self._batch_rows.observe(rows)
        self._batch_seconds.observe(seconds)

    def wrote(self, tokens: int) -> None:
        """Counts the tokens of an answer."""
        self._written.inc(tokens)

    def refused(self, reason: str) -> None:
        """Counts a request that was not computed."""
        self._refused.labels(reason).inc()

    def answered(self, endpoint: str, status: int, seconds: float) -> None:
        """Counts an answer. `endpoint` is one of a few names, never text from a client."""
        self._requests.labels(endpoint, status).inc()
        self._seconds.labels(endpoint).observe(seconds)

    def page(self) -> bytes:
        """Returns all metrics in Prometheus's text format."""
        return generate_latest(self._registry)


PROBES = ("/healthz", "/readyz")  # polled every few seconds, even before a model is loaded


class AccessLog:
    """Writes a line of JSON for each answer, or only for errors.

    If the stream fails, because the disk is full or its reader has gone (`| head`), stderr says
    so once, and requests are still answered.

    Args:
        level: "off", "errors" (except those of probes) or "all".
        stream: where lines go; standard output by default.
    """

    def __init__(self, level: str, stream: TextIO | None = None) -> None:
        self._level, self._stream = level, stream
        self._failed = False

    def write(self, status: int, record: dict[str, Any]) -> None:
        """Writes a line: UTC time, status, then the record without its None values."""
        is_error = status >= 400 and record.get("path") not in PROBES
        if self._level == "off" or (self._level == "errors" and not is_error):
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        known = {name: value for name, value in record.items() if value is not None}
        line = json.dumps({"time": now.replace("+00:00", "Z"), "status": status} | known)
        stream = self._stream or sys.stdout
        try:
            stream.write(line + "\n")  # a single write, so that lines of threads do not mix
            stream.flush()
        except (OSError, ValueError) as error:  # ValueError: the stream is closed
            self._report(error)

    def _report(self, error: OSError | ValueError) -> None:
        if self._failed:
            return
        self._failed = True
        reason = getattr(error, "strerror", None) or error
        with suppress(OSError, ValueError):
            text = f"cannot write the access log: {reason}. Requests are still answered."
            print(text, file=sys.stderr)
