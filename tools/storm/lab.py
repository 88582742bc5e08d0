"""A folder to break things in, random numbers, and a function that runs a command."""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_transformer.data import builtin

ROOT = Path(__file__).parents[2]
# The smallest model that can be trained, and the fastest search for its evaluations.
SMALLEST = (
    "model.num_layers=1", "model.d_model=16", "model.d_ff=16", "model.num_heads=2",
    "decoding.beam_size=1", "decoding.max_extra_length=2",
)  # fmt: skip


def set_options(*settings: str) -> list[str]:
    """Returns --set for each setting; of equal names the last counts."""
    return [word for setting in settings for word in ("--set", setting)]


@dataclass(frozen=True)
class Outcome:
    """The outcome of one try.

    Attributes:
        what: the kind of try, by which the report counts.
        held: whether the promise was kept.
        detail: for a broken promise, how to repeat the try, and its output.
    """

    what: str
    held: bool
    detail: str = ""


@dataclass(frozen=True)
class Done:
    """The end of a command; `status` is None if it was still running at its time limit."""

    status: int | None
    stdout: str
    stderr: str

    @property
    def traceback(self) -> bool:
        return "Traceback (most recent call last)" in self.stdout + self.stderr

    @property
    def errors(self) -> list[str]:
        return re.findall("^error: .*", self.stderr, re.MULTILINE)


def write_builtin_text(folder: Path, number: int) -> None:
    """Writes `number` pairs of the built-in text as train.*, the first 8 also as dev.*."""
    sides = zip(*builtin.pairs(number), strict=True)
    for language, lines in zip(builtin.LANGUAGES, sides, strict=True):
        for name, part in (("train", lines), ("dev", lines[:8])):
            text = "".join(f"{line}\n" for line in part)
            (folder / f"{name}.{language}").write_text(text, "utf-8")


@contextmanager
def stdin_of(path: Path) -> Iterator[None]:
    """Makes a file the standard input of this process."""
    saved = os.dup(0)
    with path.open("rb") as file:
        os.dup2(file.fileno(), 0)
        try:
            yield
        finally:
            os.dup2(saved, 0)
            os.close(saved)


class Lab:
    """A folder to break things in, and a generator of random numbers.

    Args:
        folder: an empty folder for all files of a storm.
        seed: seed of `random`; the same seed tries the same things in the same order.
    """

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder = folder
        self.random = random.Random(seed)

    def run(
        self,
        arguments: Sequence[str | bytes],
        text: bytes = b"",
        seconds: float = 120,
        **circumstances: Any,
    ) -> Done:
        """Runs `tf-transformer ARGUMENTS` in `folder` with `text` on standard input.

        `circumstances` are further arguments of `subprocess.Popen`.
        """
        command = [sys.executable, "-m", "tf_transformer.cli.main", *arguments]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        usual = pipes | {"cwd": self.folder, "env": os.environ | {"PYTHONPATH": str(ROOT)}}
        with subprocess.Popen(command, **usual | circumstances) as process:
            try:
                stdout, stderr = process.communicate(text, timeout=seconds)
                status = process.returncode
            except subprocess.TimeoutExpired:
                process.kill()
                stdout, stderr = process.communicate()
                status = None
        texts = ((stream or b"").decode(errors="replace") for stream in (stdout, stderr))
        return Done(status, *texts)


# Environment that makes Python print its stacks at SIGABRT.
PRINTS_STACKS = {"PYTHONFAULTHANDLER": "1"}


def end_with_stacks(process: subprocess.Popen) -> str:
    """Ends a process, which first prints Python's stacks on its stderr.

    Returns:
        The native stacks of all threads, or the reason why there are none.
    """
    native = _native_stacks(process.pid)
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
    return native


def _native_stacks(number: int) -> str:
    if not shutil.which("gdb"):
        return "no gdb: no native stacks"
    command = ["gdb", "-p", str(number), "-batch", "-ex", "thread apply all backtrace 40"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "gdb: no native stacks within 120 s"
    return done.stdout.decode(errors="replace")
