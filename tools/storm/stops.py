"""Signals and kills at random moments of training, which must end in seconds and lose nothing.

Two training runs, one on one device and one on two, are stopped and resumed until they finish;
then their files are compared with those of undisturbed runs.
"""

import json
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from tools.compare_commits.comparison import arrays
from tools.storm.lab import (
    PRINTS_STACKS,
    ROOT,
    SMALLEST,
    Lab,
    Outcome,
    end_with_stacks,
    set_options,
    write_builtin_text,
)

STEPS, PERIOD = 36, 12
SETTINGS = (
    *SMALLEST, "model.vocab_size=350",
    "training.save_minutes=0.0005",  # so that about half of the time is spent writing
    f"training.steps={STEPS}", f"training.evaluate_every={PERIOD}",
    "training.batch_tokens=256", "training.ema_decay=0.9",
)  # fmt: skip
SIGNALS = {
    signal.SIGINT: "Ctrl-C",
    signal.SIGTERM: "SIGTERM",
    signal.SIGHUP: "SIGHUP",
    signal.SIGKILL: "SIGKILL",
}
SECONDS_TO_END = 10  # after its last line
SECONDS_TO_ANSWER = 120  # until that line; on a loaded machine the first step is slow
GOES_ON = "run the same command again to resume"
FINISHED = "\nThe run is in "


def tries(lab: Lab) -> Iterator[Outcome]:
    """Yields stops, and comparisons of finished runs, endlessly."""
    options = small_training(lab.folder)
    lives = [Life(lab, options, devices) for devices in (1, 2)]
    try:
        while True:
            for life in lives:
                yield from life.look()
            time.sleep(0.002)
    finally:
        for life in lives:
            life.session.process.kill()


def small_training(folder: Path) -> list[str]:
    """Writes 60 sentence pairs to `folder`; returns arguments of train.py for them."""
    write_builtin_text(folder, 60)
    files = ["--train", str(folder / "train"), "--valid", str(folder / "dev")]
    words = set_options(*SETTINGS)
    return [*files, "--source", "en", "--target", "de", *words]


class Session:
    """A process of train.py; its output goes to files in `folder`."""

    def __init__(self, arguments: list[str], folder: Path) -> None:
        self.out, self.err = folder / "stdout", folder / "stderr"
        self.began = time.monotonic()
        with self.out.open("wb") as stdout, self.err.open("wb") as stderr:
            self.process = subprocess.Popen(
                [sys.executable, str(ROOT / "train.py"), *arguments],
                stdout=stdout,
                stderr=stderr,
                env=os.environ | {"PYTHONPATH": str(ROOT)} | PRINTS_STACKS,
                preexec_fn=_default_signals,
            )

    def stdout(self) -> str:
        return self.out.read_text("utf-8", errors="replace")

    def stderr(self) -> str:
        return self.err.read_text("utf-8", errors="replace")


def _default_signals() -> None:
    """Restores default signal handling, since `nohup` and background jobs ignore signals."""
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


class Life:
    """A run that is stopped and resumed until it finishes, compared, and started again."""

    def __init__(self, lab: Lab, options: list[str], devices: int) -> None:
        self.random = random.Random(lab.random.random())
        self.folder = lab.folder / f"{devices}-devices"
        self.folder.mkdir()
        self.devices = devices
        self.options = [*options, "--devices", str(devices)]
        self.run, self.whole = self.folder / "run", self.folder / "whole"
        self._go_on()

    def look(self) -> Iterator[Outcome]:
        """Sends the signal if it is due; after the end of a process, starts the next."""
        now = time.monotonic()
        if self.session.process.poll() is None:
            if self.sent:
                yield from self._hung(now)
            elif self.number and now >= self._time_to_send(now):
                self.session.process.send_signal(self.number)
                self.sent = now
            return
        yield from self._ended()

    def _begin(self, run: Path, number: signal.Signals | None) -> None:
        """Starts a process, to be sent the signal `number`, if any, at a random moment."""
        self.number, self.sent, self.due = number, 0.0, 0.0
        self.moment = self.random.choice(list(_MOMENTS))
        self.seen = self.saved() if run == self.run else 0
        self.wanted = self.seen + self.random.randint(1, PERIOD)
        self.session = Session([*self.options, "--output", str(run)], self.folder)

    def saved(self) -> int:
        """Returns the last step with a saved state, or 0."""
        names = (path.stem for path in (self.run / "checkpoints").glob("state-*.npz"))
        return max((int(name.removeprefix("state-")) for name in names), default=0)

    def _time_to_send(self, now: float) -> float:
        if self.moment == "start-up":
            self.due = self.due or self.session.began + self.random.uniform(0.5, 8)
        elif not self.due and _MOMENTS[self.moment](self):
            self.due = now + self.random.uniform(0, 0.2)
        return self.due or float("inf")

    def _hung(self, now: float) -> Iterator[Outcome]:
        """Yields an outcome if the process should have ended by now."""
        last_line = max(self.sent, self.session.out.stat().st_mtime - time.time() + now)
        answered = re.search(f"{GOES_ON}|{FINISHED}", self.session.stdout())
        if now - last_line > (SECONDS_TO_END if answered else SECONDS_TO_ANSWER):
            native = end_with_stacks(self.session.process)
            yield self._outcome(f"did not end\n{native}")
            self._go_on()

    def _ended(self) -> Iterator[Outcome]:
        status = self.session.process.returncode
        if self.sent:
            printed = self.session.stdout(), self.session.stderr()
            yield self._outcome(what_is_wrong(self.number, status, *printed))
        elif status:
            yield self._outcome("ended by itself")
        if status == 0 and not self.whole.exists():
            self._begin(self.whole, None)
            return
        if status == 0:
            differing = differences(self.whole, self.run)
            held = "ended as if undisturbed, " + self._on()
            yield Outcome(held, not differing, ", ".join(differing))
            shutil.rmtree(self.run)
        self._go_on()

    def _go_on(self) -> None:
        self._begin(self.run, self.random.choice(list(SIGNALS)))

    def _on(self) -> str:
        return f"{self.devices} device{'s' if self.devices > 1 else ''}"

    def _outcome(self, wrong: str) -> Outcome:
        name = SIGNALS[self.number] if self.number else "no signal"
        printed = f"{self.session.stdout()}\n{self.session.stderr()}"
        status = self.session.process.returncode
        detail = f"{self.moment}: {wrong}; status {status}, printed:\n{printed}"
        return Outcome(f"{name}, {self._on()}", not wrong, detail)


def what_is_wrong(number: signal.Signals, status: int, stdout: str, stderr: str) -> str:
    """Describes the fault in the way a process ended after a signal; empty if there is none."""
    if "Traceback" in stdout + stderr:
        return "traceback"
    if number == signal.SIGKILL or (status == 0 and FINISHED in stdout):
        return "" if status in (0, -signal.SIGKILL) else "wrong status"
    if not stdout or FINISHED in stdout:  # nothing to save yet, or no longer
        return "" if status in (-number, 128 + number) else "wrong status"
    if status != 128 + number:
        return "wrong status"
    stopped = rf"stopped( at step \d+)? by {SIGNALS[number]}; {GOES_ON}"
    return "" if re.fullmatch(stopped, stdout.splitlines()[-1]) else "wrong last line"


def _writing(life: Life) -> bool:
    return any((life.run / "checkpoints").glob(".*.tmp"))


_MOMENTS: dict[str, Callable[[Life], bool]] = {
    "start-up": lambda life: True,
    "steps": lambda life: life.saved() >= life.wanted,
    "write": lambda life: life.saved() > life.seen and _writing(life),
    "evaluation": lambda life: life.saved() > life.seen and life.saved() % PERIOD == 0,
    "end": lambda life: "average of the last" in life.session.stdout(),
}


def differences(whole: Path, disturbed: Path) -> list[str]:
    """Lists the arrays and files in which two finished runs differ, except for times."""
    names = {"metrics.jsonl"}
    for run in (whole, disturbed):
        names |= {f"checkpoints/{path.name}" for path in (run / "checkpoints").iterdir()}
    last = {f"checkpoints/state-{STEPS:08d}.npz", f"checkpoints/step-{STEPS:08d}.npz"}
    names = {name for name in names if "state-" not in name or name in last} | last
    return [
        found
        for name in sorted(names)
        for found in _differing(name, whole / name, disturbed / name)
    ]


def _differing(name: str, expected: Path, found: Path) -> list[str]:
    if not (expected.exists() and found.exists()):
        return [f"{name} is missing"]
    if expected.suffix != ".npz":
        return [] if _history(expected) == _history(found) else [name]
    one, other = arrays(expected), arrays(found)
    if one.keys() != other.keys():
        return [f"{name}: names of arrays"]
    return [f"{name}: {key}" for key in one if not _same(key, one[key], other[key])]


def _same(name: str, expected: np.ndarray, found: np.ndarray) -> bool:
    """Compares bit for bit, except mean training losses, which are summed in another order."""
    if not name.startswith("progress/mean/"):
        return expected.tobytes() == found.tobytes()
    return np.allclose(expected, found, rtol=1e-6)


def _history(path: Path) -> list[dict[str, float]]:
    """Returns the dev scores; training losses may differ by the order of summation."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    return [{k: v for k, v in record.items() if k.startswith("valid_")} for record in records]
