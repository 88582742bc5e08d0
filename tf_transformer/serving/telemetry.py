"""Metrics for Prometheus, for the operator of a server."""

import functools

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
)

_LATENCIES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 0.75, 1, 1.5, 2, 3, 5, 10, 20, 30, 60)
_ROWS = (1, 2, 4, 8, 16, 24, 32)


class Telemetry:
    """Metrics of one server, named `tf_transformer_...`, and of its process."""

    def __init__(self) -> None:
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        counter = functools.partial(Counter, namespace="tf_transformer", registry=registry)
        gauge = functools.partial(Gauge, namespace="tf_transformer", registry=registry)
        histogram = functools.partial(
            Histogram, namespace="tf_transformer", registry=registry, buckets=_LATENCIES
        )
        # An endpoint is one of a few names, never text from a client.
        self.requests = counter("requests", "Answers.", ["endpoint", "status"])
        self.refused = counter("refused", "Requests that were not computed.", ["reason"])
        text = "Time from a complete request to its answer."
        self.request_seconds = histogram("request_seconds", text, ["endpoint"])
        self.waiting_rows = gauge("waiting_rows", "Rows in the queue.")
        self.batch_rows = histogram("batch_rows", "Rows of a batch.", buckets=_ROWS)
        self.batch_seconds = histogram("batch_seconds", "Time to compute a batch.")
        self.tokens_read = counter("tokens_read", "Tokens of queued requests.")
        self.tokens_written = counter("tokens_written", "Tokens of answers that count them.")
        self.version = gauge("version", "The loaded version; 0: none.")
        text = "Versions that are there but cannot be used; the log says why."
        self.refused_versions = gauge("refused_versions", text)

    def page(self) -> bytes:
        """Returns all metrics in Prometheus's text format."""
        return generate_latest(self._registry)
