"""Runs the command line like a user, in a new process or, to save time, in this one."""

import argparse
import io
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.cli.main import command_parser, main
from tools.storm.lab import stdin_of

ROOT = Path(__file__).parents[1]
TF_TRANSFORMER = [sys.executable, "-m", "tf_transformer.cli.main"]

# sacreBLEU's for the defaults of `evaluate`, as a pattern.
SIGNATURE = r"nrefs:1\|case:mixed\|eff:no\|tok:13a\|smooth:exp\|version:[\d.]+"


@dataclass(frozen=True)
class TrainedRun:
    """A run of train.py and what it printed.

    `options` are its arguments except --output; `corpus` is the folder of its text, in which
    dev.en and dev.de are the first lines of train.en and train.de.
    """

    path: Path
    corpus: Path
    options: list[str]
    stdout: str
    stderr: str

    def lines(self, name: str) -> list[str]:
        """Returns the lines of a file of the corpus."""
        return (self.corpus / name).read_text("utf-8").splitlines()


def train_command(options: Sequence[str], output: Path) -> list[str]:
    return [sys.executable, str(ROOT / "train.py"), *options, "--output", str(output)]


def train_options(words: Sequence[str]) -> argparse.Namespace:
    """Parses options of train.py."""
    return command_parser("train").parse(words)


def environment() -> dict[str, str]:
    """Returns the environment with TensorFlow at its loudest."""
    loud = {name: value for name, value in os.environ.items() if not name.startswith("TF_")}
    return loud | {"PYTHONPATH": str(ROOT)}


def run_command(
    command: Sequence[str], text: bytes = b"", **options
) -> subprocess.CompletedProcess[bytes]:
    """Runs a command to its end with `text` on stdin."""
    return subprocess.run(
        command, input=text, capture_output=True, env=environment(), check=False, **options
    )


def tree(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def status_of(arguments: Sequence[str]) -> int:
    """Runs the command in this process; returns its exit status."""
    try:
        return main(arguments)
    except SystemExit as end:
        return end.code


def run_here(arguments: Sequence[str]) -> subprocess.CompletedProcess[str]:
    """Runs a command in this process, which saves seconds of imports."""
    with redirect_stdout(io.StringIO()) as out, redirect_stderr(io.StringIO()) as err:
        status = status_of(arguments)
    return subprocess.CompletedProcess(arguments, status, out.getvalue(), err.getvalue())


def run_words_here(words: Sequence[str]) -> int:
    """Runs a command of this package in this process: `system.run_child` for tests."""
    assert [*words[:3]] == TF_TRANSFORMER
    return status_of(words[3:])


def translated(capsys, run: Path, file: Path, *options: str) -> list[str]:
    """Returns the lines that `translate` prints for those of a file."""
    with stdin_of(file):
        assert main(["translate", str(run), *options]) == 0
    lines = capsys.readouterr().out.split("\n")  # `splitlines` breaks at more characters
    assert lines.pop() == ""
    return lines


def assert_refused(capsys, arguments: list[str], expected: str, *, status: int) -> None:
    """Asserts that a command is refused with one line on stderr, and changes no file.

    Its status is 2 from the argument parser, and 1 from the command itself. `capsys` ignores
    what TensorFlow's C++ code writes.
    """
    before = tree(Path())
    assert status_of(arguments) == status
    after = tree(Path())
    stderr = capsys.readouterr().err
    assert re.fullmatch(r"error: [^\n]+\n", stderr), stderr
    assert re.search(expected, stderr), stderr
    assert before.items() <= after.items()
    assert not [name for name in after.keys() - before.keys() if "tmp" in Path(name).name]
