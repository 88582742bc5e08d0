"""Draws a server's metrics over time, like a Prometheus dashboard.

python serving/dashboard.py http://localhost:8501 --seconds 300 --picture dashboard.png
"""

import argparse
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
from prometheus_client.parser import text_string_to_metric_families
from script import run

from tf_transformer.errors import UserError
from tf_transformer.plots.figure import STYLES, new_figure, save

PATH = "/monitoring/prometheus/metrics"
Sample = dict[tuple[str, tuple[tuple[str, str], ...]], float]  # by name and labels
Series = dict[str, Sequence[float]]  # one value per reading, by legend


class Recorder:
    """Reads the metrics of a server every few seconds; a context manager.

    Attributes:
        times: seconds from the start to each reading.
        samples: metrics of each reading.
    """

    def __init__(self, url: str, every: float = 5.0) -> None:
        self._url, self._every = url.rstrip("/") + PATH, every
        self.times: list[float] = []
        self.samples: list[Sample] = []
        self._begun = time.monotonic()
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> "Recorder":
        try:
            self.read()
        except (OSError, ValueError) as error:  # ValueError: not a URL, or not metrics
            text = f"{self._url} must be a server's metrics. Received: {error}."
            raise UserError(text) from None
        self._thread.start()
        return self

    def __exit__(self, *_) -> None:
        self._end.set()
        self._thread.join()
        self.read()

    def read(self) -> Sample:
        """Reads, stores and returns the current metrics; OSError if there is no server."""
        with urllib.request.urlopen(self._url, timeout=60) as answer:
            text = answer.read().decode()
        metrics = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
        self.times.append(time.monotonic() - self._begun)
        self.samples.append(metrics)
        return metrics

    def _run(self) -> None:
        while not self._end.wait(self._every):
            try:
                self.read()
            except OSError as error:
                print(f"no metrics at {time.monotonic() - self._begun:.0f} s: {error}")


class Metrics:
    """Series from a recording, like the queries of a dashboard."""

    def __init__(self, times: Sequence[float], samples: Sequence[Sample]) -> None:
        self.times, self._samples = np.asarray(times), samples

    def gauge(self, name: str, label: str = "") -> Series:
        """Returns the values of a metric, by the values of a label."""
        return {
            key: np.array([_sum(sample, name, label, key) for sample in self._samples])
            for key in self._keys(name, label)
        }

    def rate(self, name: str, label: str = "") -> Series:
        """Returns the increase of a counter per second, by the values of a label."""
        seconds = np.diff(self.times, prepend=np.nan)
        return {
            key: np.diff(values, prepend=np.nan) / seconds
            for key, values in self.gauge(name, label).items()
        }

    def mean(self, name: str) -> Sequence[float]:
        """Returns the mean of a histogram since the previous reading."""
        (sums,), (counts,) = (self.rate(f"{name}_{what}").values() for what in ("sum", "count"))
        return np.divide(sums, counts, out=np.full_like(sums, np.nan), where=counts > 0)

    def quantiles(self, name: str, endpoint: str, shares: Sequence[float]) -> Series:
        """Returns quantiles of a histogram since the previous reading, like Prometheus.

        Interpolates linearly within a bucket; beyond the last bound it returns that bound.
        """
        series: dict[str, list[float]] = {f"p{100 * share:g}": [np.nan] for share in shares}
        for before, after in pairwise(self._samples):
            bounds, counts = _buckets(after, name, endpoint)
            earlier = dict(zip(*_buckets(before, name, endpoint), strict=True))
            counts = counts - [earlier.get(bound, 0.0) for bound in bounds]
            for share, values in zip(shares, series.values(), strict=True):
                values.append(quantile(bounds, counts, share))
        return {key: np.array(values) for key, values in series.items()}

    def _keys(self, name: str, label: str) -> list[str]:
        every = {
            dict(labels).get(label, "")
            for sample in self._samples
            for known, labels in sample
            if known == name
        }
        return sorted(every) or [""]


def quantile(bounds: Sequence[float], counts: Sequence[float], share: float) -> float:
    """Returns a quantile of a histogram of cumulative counts; NaN if nothing was counted."""
    if not len(bounds) or counts[-1] <= 0:
        return float("nan")
    rank = share * counts[-1]
    row = int(np.searchsorted(counts, rank))
    if np.isinf(bounds[row]):
        return float(bounds[row - 1])
    low, below = (bounds[row - 1], counts[row - 1]) if row else (0.0, 0.0)
    return float(low + (bounds[row] - low) * (rank - below) / (counts[row] - below))


def _sum(sample: Sample, name: str, label: str, key: str) -> float:
    return sum(
        value
        for (known, labels), value in sample.items()
        if known == name and dict(labels).get(label, "") == key
    )


def _buckets(sample: Sample, name: str, endpoint: str) -> tuple[np.ndarray, np.ndarray]:
    rows = sorted(
        (float(dict(labels)["le"]), value)
        for (known, labels), value in sample.items()
        if known == f"{name}_bucket" and dict(labels).get("endpoint") == endpoint
    )
    return np.array([bound for bound, _ in rows]), np.array([count for _, count in rows])


def draw(times: Sequence[float], samples: Sequence[Sample], path: Path) -> None:
    """Draws eight panels over time."""
    metrics, prefix = Metrics(times, samples), "tf_transformer_"
    seconds, rate = f"{prefix}request_seconds", metrics.rate
    panels: list[tuple[str, Callable[[], Series]]] = [
        ("answers per second, by status", lambda: rate(f"{prefix}requests_total", "status")),
        ("latency of predict, seconds",
         lambda: metrics.quantiles(seconds, "serving_default", (0.5, 0.95, 0.99))),
        ("refusals per second, by reason", lambda: rate(f"{prefix}refused_total", "reason")),
        ("rows in the queue", lambda: metrics.gauge(f"{prefix}waiting_rows")),
        ("mean rows per batch", lambda: {"": metrics.mean(f"{prefix}batch_rows")}),
        ("tokens per second",
         lambda: {what: rate(f"{prefix}tokens_{what}_total")[""]
                  for what in ("read", "written")}),
        ("memory, MB",
         lambda: {"": metrics.gauge("process_resident_memory_bytes")[""] / 1e6}),
        ("CPU, cores", lambda: rate("process_cpu_seconds_total")),
    ]  # fmt: skip
    figure = new_figure(13, 5.5)
    for axes, (title, series) in zip(figure.subplots(2, 4).flat, panels, strict=True):
        for number, (label, values) in enumerate(series().items()):
            style = STYLES[number % len(STYLES)] | {"marker": ""}
            axes.plot(metrics.times / 60, values, label=label or None, linewidth=1, **style)
        axes.set_title(title, fontsize="medium")
        axes.set_ylim(0, None)
        axes.grid(alpha=0.3)
        if axes.get_legend_handles_labels()[1]:
            axes.legend(fontsize="small")
    figure.supxlabel("minutes")
    save(figure, path, dpi=150)


def main() -> None:
    """Records for some time, or until Ctrl-C, and draws the picture."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--every", type=float, default=1.0, help="seconds between readings")
    parser.add_argument("--picture", type=Path, required=True)
    options = parser.parse_args()
    with Recorder(options.url, options.every) as recorder:
        try:
            time.sleep(options.seconds)
        except KeyboardInterrupt:
            print("drawing what was read so far")
    draw(recorder.times, recorder.samples, options.picture)


if __name__ == "__main__":
    run(main)
