"""Malformed, huge, slow and many requests to a server that also has a well-behaved client.

All requests go to a server that the storm starts on 127.0.0.1.
"""

import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tools.storm.lab import ROOT, Lab, Outcome, set_options

PATIENCE = 10.0  # seconds that a short sentence may take during any attack
GRACE = 10.0  # seconds that the server gives unfinished requests after SIGTERM
END = 30.0  # seconds from SIGTERM to the end of the server, including those of grace
SESSION = 60  # tries with one server
GROWTH = 300_000  # kB by which memory may grow in the second half of a session
SENTENCE = "The dog sees a small house."
GOOD = {"signature_name": "serving_default", "instances": [SENTENCE]}
NAMES = ("serving_default", "nbest", "with_options", "tokens", "score", "attention", "no such")
SCRAPS = (
    "null", "true", "-1", "1e999", "NaN", "[]", "{}", '""', "[[[[]]]]", '{"b64": "%"}', "\x00",
    '"\\ud800"', '"' + "x" * 5_000 + '"', "9" * 5_000, "[" * 5_000,
)  # fmt: skip


class Server:
    """A process of `serve`, and its first answer to `GOOD`."""

    def __init__(self, lab: Lab, model: str) -> None:
        self.command = [sys.executable, "-m", "tf_transformer.cli.main", "serve", model]
        self.process = subprocess.Popen(
            [*self.command, "--port", "0", "--name", "model", "--grace", str(GRACE)],
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            cwd=lab.folder, env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        match, text = None, ""
        while not match and (line := self.process.stdout.readline().decode()):
            match, text = re.search(r"http://127\.0\.0\.1:(\d+)/", line), text + line
        if not match:
            raise RuntimeError(text)
        self.port = int(match[1])
        self.translation, self.score = self._row(self.ask(json.dumps(GOOD).encode()))

    def ask(
        self, body: bytes, path: str = "/v1/models/model:predict", method: str = "POST"
    ) -> tuple[int, bytes]:
        """Returns status and body of an answer; raises OSError if there is none."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.request(method, path, body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()

    @staticmethod
    def _row(answer: tuple[int, bytes]) -> tuple[str, float]:
        (row,) = json.loads(answer[1])["predictions"]
        return row["translation"], row["score"]

    def is_right(self, answer: tuple[int, bytes]) -> bool:
        """Tells whether this is the answer to `GOOD`; batching may change its rounding."""
        with suppress(ValueError, LookupError, TypeError):
            translation, score = self._row(answer)
            same = translation == self.translation and abs(score - self.score) < 1e-4
            return answer[0] == 200 and same
        return False

    def fault(self) -> str:
        """Asks as a well-behaved client; describes its complaint, "" if there is none."""
        start = time.monotonic()
        try:
            answer = self.ask(json.dumps(GOOD).encode())
        except OSError as error:
            return f"no answer: {error!r}"
        seconds = time.monotonic() - start
        if not self.is_right(answer):
            return f"answered {answer} instead of {self.translation!r}"
        return f"answered after {seconds:.1f} s" if seconds > PATIENCE else ""

    @property
    def memory(self) -> int:
        """Returns the resident memory in kB."""
        with open(f"/proc/{self.process.pid}/status") as file:
            return int(re.search(r"VmRSS:\s+(\d+)", file.read())[1])

    def kill(self) -> None:
        """Ends the process at once."""
        self.process.kill()
        self.process.communicate()


def tries(lab: Lab) -> Iterator[Outcome]:
    """Yields outcomes endlessly, from one server after the other.

    The servers use `model` in the lab's folder, which is trained and exported if missing.
    """
    model = _model(lab)
    attacks = [malformed, mutated, huge, held, many]
    while True:
        server = Server(lab, model)
        try:
            for number in range(SESSION):
                if number == SESSION // 2:
                    memory = server.memory
                attack = (
                    attacks[number] if number < len(attacks) else lab.random.choice(attacks)
                )
                yield _beside(server, lab, attack)
            grown = server.memory - memory
            yield Outcome("memory", grown <= GROWTH, f"{grown} kB more than halfway")
            yield _end(server)
        finally:
            server.kill()


def _model(lab: Lab) -> str:
    if not (lab.folder / "model").exists():
        small = ("model.num_layers=1", "model.d_model=64", "model.d_ff=128",
                 "training.steps=60", "training.evaluate_every=60")  # fmt: skip
        for command in (["train", "--output", "run", *set_options(*small)],
                        ["export", "run", "--output", "model"]):  # fmt: skip
            done = lab.run(command, seconds=1_800)
            if done.status != 0:
                raise RuntimeError(done.stdout + done.stderr)
    return "model"


Attack = Callable[[Server, Lab], str]


def _beside(server: Server, lab: Lab, attack: Attack) -> Outcome:
    """Sends `GOOD` during and after an attack, and reports every fault."""
    with ThreadPoolExecutor() as pool:
        attacking = pool.submit(attack, server, lab)
        faults = []
        while not attacking.done() and not any(faults):
            faults.append(server.fault())
        try:
            faults.append(attacking.result())
        except (OSError, http.client.HTTPException) as error:
            faults.append(f"no answer to the attack: {error!r}")
    faults.append(server.fault())
    detail = "; ".join(fault for fault in faults if fault)
    return Outcome(attack.__name__, not detail, detail)


def _checked(answer: tuple[int, bytes], body: bytes, allowed: tuple[int, ...]) -> str:
    status, text = answer
    with suppress(ValueError):
        is_early = status in (413, 431)  # before the request reaches the application
        if status in allowed and (is_early or (status == 200) != ("error" in json.loads(text))):
            return ""
    return f"{status} {text[:200]!r} for {body[:500]!r}"


def malformed(server: Server, lab: Lab) -> str:
    """Sends requests made of parts that do not belong together."""
    choose = lab.random.choice
    name = f'"signature_name": {choose([*map(json.dumps, NAMES), *SCRAPS])}'
    values = choose([*SCRAPS, json.dumps([SENTENCE]), json.dumps({"text": [SENTENCE]})])
    rows = f'"{choose(["instances", "inputs", "rows"])}": {values}'
    body = f"{{{name}, {rows}}}".encode()
    path = choose(["model:predict"] * 8 + ["other:predict", "model", "model:classify", "%00"])
    method = choose(["POST"] * 8 + ["GET", "PUT", "DELETE"])
    answer = server.ask(body, f"/v1/models/{path}", method)
    return _checked(answer, body, (200, 400, 404, 405))


def mutated(server: Server, lab: Lab) -> str:
    """Sends a good request with bytes changed, removed or doubled."""
    options = {"text": SENTENCE, "alpha": 0.5, "max_length": 9, "prefix": "Der"}
    record = lab.random.choice(
        [GOOD, {"signature_name": "with_options", "instances": [options]}]
    )
    body = bytearray(json.dumps(record).encode())
    for _ in range(lab.random.randint(1, 4)):
        index = lab.random.randrange(len(body))
        kept = lab.random.choice(
            [b"", bytes([lab.random.randrange(256)]), body[index:][:9] * 2]
        )
        body[index : index + 1] = kept
    return _checked(server.ask(bytes(body)), bytes(body), (200, 400))


def huge(server: Server, lab: Lab) -> str:
    """Sends four long, wide or tall requests at a time; 504 is an acceptable answer."""
    size = lab.random.choice([1_000, 30_000, 100_000, 2_000_000])
    text = (SENTENCE + " ") * (size // len(SENTENCE))
    options = {"text": SENTENCE, "alpha": -1.0, "max_length": 5, "prefix": text}
    name, instance = lab.random.choice([
        ("serving_default", text),
        ("nbest", text),
        ("with_options", options),
        ("tokens", [5] * (size // 10)),
        ("score", {"source": text, "target": text}),
    ])  # fmt: skip
    rows = lab.random.choice([1, 8, 32, 33])
    body = json.dumps({"signature_name": name, "instances": [instance] * rows}).encode()
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(_ask_or_cut, server, body) for _ in range(4)]
    faults = [_checked(one.result(), body, (200, 400, 413, 503, 504)) for one in asked]
    return next(filter(None, faults), "")


def _ask_or_cut(server: Server, body: bytes) -> tuple[int, bytes]:
    """Returns the answer, or 413 if the server hung up before it received the whole body."""
    try:
        return server.ask(body)
    except (BrokenPipeError, ConnectionResetError):
        return 413, b'{"error": "cut"}'


def held(server: Server, lab: Lab) -> str:
    """Opens hundreds of connections with part of a request or nothing, then sends a byte."""
    part = lab.random.choice([b"", b"POST /v1/models/mo", b"POST / HTTP/1.1\r\nHost: x\r\n"])
    held = []
    with suppress(OSError):  # the server may have closed a connection
        for _ in range(lab.random.choice([140, 400])):
            held.append(socket.create_connection(("127.0.0.1", server.port), timeout=60))
            held[-1].sendall(part)
    fault = server.fault()
    for one in held:
        with suppress(OSError):
            one.sendall(b"x")
    fault = fault or server.fault()
    for one in held:
        one.close()
    return fault


def many(server: Server, lab: Lab) -> str:
    """Starts many clients at a time; each must get its own answer, or 503."""
    clients = lab.random.choice([20, 100, 200])
    body = json.dumps(GOOD).encode()
    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(lambda _: server.ask(body), range(clients)))
    wrong = [one for one in answers if one[0] != 503 and not server.is_right(one)]
    return f"{len(wrong)} of {clients}: {wrong[0]}" if wrong else ""


def _end(server: Server) -> Outcome:
    """Sends SIGTERM while long requests are computed."""
    text = (SENTENCE + " ") * 150
    body = json.dumps({"signature_name": "nbest", "instances": [text] * 32}).encode()
    with ThreadPoolExecutor(4) as pool:
        for _ in range(4):
            pool.submit(_ask_or_cut, server, body)
        time.sleep(1.0)
        start = time.monotonic()
        server.process.send_signal(signal.SIGTERM)
        try:
            printed, _ = server.process.communicate(timeout=END)
        except subprocess.TimeoutExpired:
            server.kill()
            return Outcome("end", False, f"still running {END:g} s after SIGTERM")
    status, seconds = server.process.returncode, time.monotonic() - start
    held = status == 0 and b"Traceback" not in printed
    return Outcome("end", held, f"status {status} after {seconds:.1f} s, printed {printed!r}")
