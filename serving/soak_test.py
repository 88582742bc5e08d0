"""A long load test: many clients, requests of all lengths, and hostile clients beside them.

    python serving/soak_test.py http://localhost:8501 NAME in.en --picture soak.png

Ctrl-C ends it early. After every fifth of the requests it prints a line of JSON: how many were
answered, refused and failed, the latency and the memory of the server. The last line has the
answers to the hostile clients.
"""

import argparse
import collections
import http.client
import itertools
import json
import random
import socket
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
from dashboard import Recorder, draw
from script import Client, Columns, ServerError, patiently, run, sentences

PATIENCE = 120.0  # seconds for which a client retries a busy server


def request_texts(lines: list[str], number: int) -> list[str]:
    """Returns the texts of a request: mostly one sentence, sometimes 2 to 8, or long texts."""
    rng = random.Random(number)
    rows = rng.choice((1, 1, 1, 1, 1, 1, 2, 4, 8))
    words = 1 if rng.random() < 0.95 else rng.randrange(2, 12)  # lines joined to a long text
    return [" ".join(rng.choices(lines, k=words)) for _ in range(rows)]


class Load:
    """Clients that send their next request when they have the answer to the last one."""

    def __init__(self, client: Client, lines: list[str], requests: int) -> None:
        self._client, self._lines = client, lines
        self._numbers = iter(range(requests))
        self._lock = threading.Lock()
        self.outcomes: collections.Counter[str] = collections.Counter()
        self.seconds: list[float] = []

    def run(self) -> None:
        """Sends requests until all are sent."""
        while (number := self._next()) is not None:
            texts, before = request_texts(self._lines, number), time.monotonic()
            try:
                patiently(lambda t=texts: self._ask(t), PATIENCE)
                outcome = "answered"
            except ServerError as error:
                outcome = error.code
            with self._lock:
                self.outcomes[outcome] += 1
                if outcome == "answered":
                    self.seconds.append(time.monotonic() - before)

    def _ask(self, texts: list[str]) -> Columns:
        try:
            return self._client.predict({"text": texts})
        except ServerError as error:
            if error.busy:
                with self._lock:
                    self.outcomes["asked again"] += 1
            raise

    def _next(self) -> int | None:
        with self._lock:
            return next(self._numbers, None)

    def end(self) -> None:
        """Stops sending requests."""
        with self._lock:
            self._numbers = iter(())

    def done(self) -> int:
        """Returns the number of requests that have ended."""
        with self._lock:
            return self.outcomes.total() - self.outcomes["asked again"]


class Hostile:
    """Clients that send slowly, send garbage, or ask for too much."""

    def __init__(self, url: str, model: str, lines: list[str]) -> None:
        parts = urlsplit(url)
        self._address = (parts.hostname or "localhost", parts.port or 80)
        self._path = f"/v1/models/{model}:predict"
        self._lines = lines
        self.end = threading.Event()
        self.outcomes: dict[str, collections.Counter[str]] = {
            name: collections.Counter() for name in ("slow", "broken", "too large", "heavy")
        }

    def start(self) -> list[threading.Thread]:
        """Starts a thread for each kind of client."""
        bodies: dict[str, Callable[[int], bytes]] = {
            "broken": lambda n: random.Random(n).randbytes(n % 400),
            "too large": lambda n: b"[" * (2 << 20),
            "heavy": self._heavy,
        }
        threads = [threading.Thread(target=self._slow, daemon=True)]
        for name, body in bodies.items():
            pause = 30.0 if name == "heavy" else 0.5
            arguments = (name, body, pause)
            threads.append(threading.Thread(target=self._post, args=arguments, daemon=True))
        for thread in threads:
            thread.start()
        return threads

    def _heavy(self, number: int) -> bytes:
        long = " ".join(random.Random(number).choices(self._lines, k=100))
        return json.dumps({"instances": [long] * 32}).encode()

    def _slow(self) -> None:
        """Sends one byte a second of a request that never ends."""
        head = f"POST {self._path} HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"
        while not self.end.is_set():
            try:
                with socket.create_connection(self._address, timeout=10) as connection:
                    connection.sendall(head.encode())
                    while not self.end.wait(1.0):
                        connection.sendall(b" ")
                outcome = "held"
            except OSError:
                outcome = "closed by the server"
            self.outcomes["slow"][outcome] += 1

    def _post(self, name: str, body: Callable[[int], bytes], pause: float) -> None:
        for number in itertools.count():
            if self.end.wait(pause):
                return
            connection = http.client.HTTPConnection(*self._address, timeout=120)
            try:
                connection.request("POST", self._path, body(number))
                outcome = str(connection.getresponse().status)
            except (OSError, http.client.HTTPException):
                outcome = "closed by the server"
            finally:
                connection.close()
            self.outcomes[name][outcome] += 1


def main() -> None:
    """Runs the load, prints the results and draws the metrics."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("url")
    parser.add_argument("name")
    parser.add_argument("text", type=Path, help="a file of sentences")
    parser.add_argument("--clients", type=int, default=500)
    parser.add_argument("--requests", type=int, default=50_000)
    parser.add_argument("--every", type=float, default=5.0, help="seconds between readings")
    parser.add_argument("--picture", type=Path)
    options = parser.parse_args()
    lines = sentences(options.text)
    client = Client(options.url, options.name, deadline=PATIENCE)
    load = Load(client, lines, options.requests)
    hostile = Hostile(options.url, options.name, lines)
    with Recorder(options.url, options.every) as recorder:
        report(load, recorder, 0)
        others = hostile.start()
        clients = [threading.Thread(target=load.run) for _ in range(options.clients)]
        for thread in clients:
            thread.start()
        try:
            watch(load, recorder, options.requests, clients)
        except KeyboardInterrupt:
            load.end()
        for thread in clients:
            thread.join()
        hostile.end.set()
        for thread in others:
            thread.join()
    print(json.dumps({"hostile": hostile.outcomes}))
    if options.picture:
        draw(recorder.times, recorder.samples, options.picture)


def watch(
    load: Load, recorder: Recorder, requests: int, clients: Sequence[threading.Thread]
) -> None:
    """Reports after every fifth of the requests, until all have ended or no client is alive."""
    step = max(1, requests // 5)
    for goal in range(step, requests + 1, step):
        first = len(load.seconds)
        while load.done() < goal and any(client.is_alive() for client in clients):
            time.sleep(0.2)
        report(load, recorder, first)


def report(load: Load, recorder: Recorder, first: int) -> None:
    """Prints the current state, and the latencies since the answer with index `first`."""
    sample = recorder.read()
    seconds = load.seconds[first:]
    p50, p99 = np.percentile(seconds, [50, 99]).round(2) if seconds else (None, None)
    memory = sample["process_resident_memory_bytes", ()] / 1e6
    record = {"requests": load.done(), **load.outcomes, "p50": p50, "p99": p99}
    record |= {"memory_mb": round(memory), "minutes": round(recorder.times[-1] / 60, 1)}
    print(json.dumps(record), flush=True)


if __name__ == "__main__":
    run(main)
