"""Lines of stdin are answered as they arrive, in chunks or, on a terminal, one by one."""

import os
import pty
import re
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from select import select
from typing import BinaryIO

from command_line import TF_TRANSFORMER, environment, translated

from tf_transformer.cli.main import main
from tf_transformer.cli.options import SIZES
from tf_transformer.data.text import in_chunks
from tools.storm.lab import stdin_of

PATIENCE = 300  # seconds; an answer that never comes fails the test


def read_lines(descriptor: int, count: int) -> list[str]:
    """Reads this many lines from a pipe, as soon as they are available."""
    read = b""
    while read.count(b"\n") < count:
        assert select([descriptor], [], [], PATIENCE)[0], "no answer"
        block = os.read(descriptor, 1 << 16)
        assert block, "the command has ended"
        read += block
    assert read.endswith(b"\n") and read.count(b"\n") == count
    return read.decode().split("\n")[:-1]


def run_beside(
    converse: Callable[[BinaryIO, int], None], arguments: list[str], monkeypatch
) -> None:
    """Runs a command while a thread uses the other ends of its stdin and stdout."""
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()

    def converse_and_end() -> None:
        with os.fdopen(to_stdin, "wb", buffering=0) as file:
            converse(file, from_stdout)

    with os.fdopen(stdout, "w") as output, ThreadPoolExecutor() as pool:
        conversation = pool.submit(converse_and_end)
        monkeypatch.setattr(sys, "stdout", output)
        with stdin_of(Path(f"/dev/fd/{stdin}")):
            assert main(arguments) == 0
        conversation.result()


def test_a_coprocess_answers_each_line_before_the_next_is_written(
    trained_run, tmp_path, capsys, monkeypatch
):
    lines = ["", *trained_run.lines("train.en")[:5]]
    file = tmp_path / "in"
    file.write_text("\n".join(lines))  # without a final newline
    expected = translated(capsys, trained_run.path, file)

    def converse(to_stdin: BinaryIO, from_stdout: int) -> None:
        for line, answer in zip(lines[:3], expected, strict=False):
            to_stdin.write(f"{line}\n".encode())
            assert read_lines(from_stdout, 1) == [answer]
        to_stdin.write("\n".join(lines[3:]).encode())
        assert read_lines(from_stdout, 2) == expected[3:5]  # the last line is incomplete
        to_stdin.close()
        assert read_lines(from_stdout, 1) == expected[5:]

    run_beside(converse, ["translate", str(trained_run.path), "--line-buffered"], monkeypatch)


def test_the_first_answers_come_before_the_end_of_stdin(trained_run, monkeypatch):
    def converse(to_stdin: BinaryIO, from_stdout: int) -> None:
        for line in trained_run.lines("train.en")[: SIZES[0]]:
            to_stdin.write(f"{line}\n".encode())
        read_lines(from_stdout, SIZES[0])

    run_beside(converse, ["translate", str(trained_run.path), "--beam", "1"], monkeypatch)


def test_chunks_grow_and_lose_nothing():
    sizes = [len(chunk) for chunk in in_chunks(map(str, range(30_000)), *SIZES)]
    assert sizes == [100, 1_000, 10_000, 10_000, 8_900]
    assert [line for chunk in in_chunks("abcdefg", 2, 3) for line in chunk] == [*"abcdefg"]
    assert list(in_chunks([], 1)) == []


# --- On a terminal -----------------------------------------------------------------------


def read_until(terminal: int, pattern: str) -> str:
    """Returns the terminal's text up to the pattern, without control sequences."""
    shown, end = "", time.monotonic() + PATIENCE
    while not re.search(pattern, shown):
        assert select([terminal], [], [], end - time.monotonic())[0], shown
        shown += os.read(terminal, 4096).decode()
        shown = re.sub(r"\x1b\[\?\d+[hl]", "", shown).replace("\r", "")
    return shown


def test_a_line_is_answered_before_the_next_prompt(trained_run, tmp_path, capsys):
    lines = [*trained_run.lines("train.en")[:2], ""]
    (tmp_path / "in").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    expected = translated(capsys, trained_run.path, tmp_path / "in")
    terminal, theirs = pty.openpty()
    command = [*TF_TRANSFORMER, "translate", str(trained_run.path)]
    streams = {"stdin": theirs, "stdout": theirs, "stderr": theirs}
    with subprocess.Popen(command, env=environment() | {"TERM": "dumb"}, **streams) as process:
        os.close(theirs)
        greeting = read_until(terminal, r"> $")
        assert greeting == "Type a sentence, then Enter; Ctrl-D ends.\n> "
        for line, translation in zip(lines, expected, strict=True):
            os.write(terminal, f"{line}\n".encode())
            assert read_until(terminal, r"\n> $") == f"{line}\n{translation}\n> "
        os.write(terminal, b"\x04")
        assert process.wait(PATIENCE) == 0
    os.close(terminal)
