"""Measures a server: latency and throughput by concurrency and batch size.

    python serving/load_test.py http://localhost:8501 NAME in.en --picture load.png

Every client sends its next request as soon as it has the answer to the last one. Measuring each
point takes --seconds.
"""

import argparse
import itertools
import json
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from script import Client, ServerError, patiently, run, sentences

from tf_transformer.base.errors import UserError
from tf_transformer.plots import STYLES, new_figure, number_plainly, save

PATIENCE = 60.0  # seconds to wait for a server that is still loading its model


@dataclass(frozen=True)
class Point:
    """Results at one load; latencies are in milliseconds, None if nothing was answered."""

    clients: int
    sentences_a_request: int
    requests: int
    errors: int
    p50: float | None
    p95: float | None
    p99: float | None
    sentences_a_second: float


def measure(client: Client, texts: list[str], clients: int, size: int, seconds: float) -> Point:
    """Runs `clients` threads for some seconds, and waits for requests in flight at the end."""
    times: list[float] = []
    errors: list[str] = []
    end = time.monotonic() + seconds

    def ask(first: int) -> None:
        for start in itertools.count(first, clients):
            batch = [texts[(start * size + i) % len(texts)] for i in range(size)]
            before = time.monotonic()
            if before > end:
                return
            try:
                client.predict({"text": batch})
            except ServerError as error:
                errors.append(error.code)
            else:
                times.append(time.monotonic() - before)

    begun = time.monotonic()
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    elapsed = time.monotonic() - begun
    p50, p95, p99 = 1000 * np.percentile(times, [50, 95, 99]) if times else [None] * 3
    rate = len(times) * size / elapsed
    return Point(clients, size, len(times), len(errors), p50, p95, p99, rate)


def draw(points: list[Point], path: Path) -> None:
    """Draws latency and throughput against the number of clients."""
    figure = new_figure(9, 3.6)
    latency, throughput = figure.subplots(1, 2)
    sizes = sorted({point.sentences_a_request for point in points})
    for number, size in enumerate(sizes):
        style = STYLES[number % len(STYLES)] | {"markersize": 4}
        faint = {"color": style["color"], "linestyle": ":", "linewidth": 1}
        curve = [point for point in points if point.sentences_a_request == size]
        clients = [point.clients for point in curve]
        label = f"{size} per request"
        latency.plot(clients, [point.p50 for point in curve], label=label, **style)
        latency.plot(clients, [point.p99 for point in curve], **faint)
        throughput.plot(clients, [p.sentences_a_second for p in curve], label=label, **style)
    title = "Latency: p50, p99 dotted"
    latency.set(ylabel="milliseconds per request", yscale="log", title=title)
    throughput.set(ylabel="sentences per second", ylim=(0, None), title="Throughput")
    for axes in (latency, throughput):
        axes.set(xlabel="concurrent clients", xscale="log")
        axes.set_xticks(clients, clients)
        axes.xaxis.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    number_plainly(latency.yaxis)
    save(figure, path)


def main() -> None:
    """Measures all combinations of clients and sentences, and prints the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("text", type=Path, help="a file of sentences")
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 2, 4, 8, 16, 32])
    parser.add_argument("--sentences", type=int, nargs="+", default=[1, 8], help="per request")
    parser.add_argument("--seconds", type=float, default=5.0, help="per point")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    texts = sentences(options.text)
    client = Client(options.url, options.name)
    try:
        patiently(lambda: client.predict({"text": texts[:8]}), PATIENCE)  # warm-up
    except ServerError as error:
        raise UserError(f"{options.url} does not answer: {error}") from None
    points = []
    for size, clients in itertools.product(options.sentences, options.clients):
        points.append(measure(client, texts, clients, size, options.seconds))
        print(json.dumps(asdict(points[-1])), flush=True)
    if options.picture:
        draw(points, options.picture)


if __name__ == "__main__":
    run(main)
