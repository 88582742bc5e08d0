"""The lines of stdin, answered as they arrive or in chunks."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from select import select

import pytest
from command_line import TF_TRANSFORMER, assert_refused, environment, translated

from tf_transformer.cli.lines import SIZES, in_chunks
from tf_transformer.cli.main import main
from tools.storm.lab import stdin_of

PATIENCE = 300  # seconds; an answer that never comes fails the test


@contextmanager
def translating(*arguments: str):
    """A process between two pipes."""
    with subprocess.Popen(
        [*TF_TRANSFORMER, "translate", "--threads", "1", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment(),
        bufsize=0,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def answers(process, count: int) -> list[str]:
    """So many lines of the process's output."""
    return read_lines(process.stdout.fileno(), count)


def read_lines(descriptor: int, count: int) -> list[str]:
    """So many lines from a pipe, as soon as they are there."""
    read = b""
    while read.count(b"\n") < count:
        assert select([descriptor], [], [], PATIENCE)[0], "no answer"
        block = os.read(descriptor, 1 << 16)
        assert block, "the process has ended"
        read += block
    assert read.endswith(b"\n") and read.count(b"\n") == count
    return read.decode().split("\n")[:-1]


def test_a_coprocess_answers_each_line_before_the_next_is_written(
    trained_run, tmp_path, capsys
):
    lines = ["", *trained_run.lines("train.en")[:5]]
    file = tmp_path / "in"
    file.write_text("\n".join(lines))  # the last line has no end
    expected = translated(capsys, trained_run.path, file)
    with translating(str(trained_run.path), "--line-buffered") as process:
        for line, answer in zip(lines[:3], expected, strict=False):
            process.stdin.write(f"{line}\n".encode())
            assert answers(process, 1) == [answer]
        several = "\n".join(lines[3:]).encode()
        process.stdin.write(several)
        assert answers(process, 2) == expected[3:5]  # and waits for the end of the last
        process.stdin.close()
        assert answers(process, 1) == expected[5:]
        assert process.wait(PATIENCE) == 0


def test_the_first_answers_come_long_before_the_end_of_stdin(trained_run, monkeypatch):
    lines = trained_run.lines("train.en")[: SIZES[0]]
    stdin, to_stdin = os.pipe()
    from_stdout, stdout = os.pipe()

    def converse() -> list[str]:
        try:
            os.write(to_stdin, "".join(f"{line}\n" for line in lines).encode())
            return read_lines(from_stdout, SIZES[0])
        finally:
            os.close(to_stdin)

    with os.fdopen(stdout, "w") as output, ThreadPoolExecutor() as pool:
        conversation = pool.submit(converse)
        monkeypatch.setattr(sys, "stdout", output)
        with stdin_of(Path(f"/dev/fd/{stdin}")):
            assert main(["translate", str(trained_run.path), "--beam", "1"]) == 0
        assert len(conversation.result()) == SIZES[0]


def test_chunks_grow_and_lose_nothing():
    sizes = [len(chunk) for chunk in in_chunks(map(str, range(30_000)))]
    assert sizes == [100, 1_000, 10_000, 10_000, 8_900]
    assert [line for chunk in in_chunks("abcdefg", [2, 3]) for line in chunk] == [*"abcdefg"]
    assert list(in_chunks([])) == []


def test_prefixes_keep_to_their_lines_as_these_arrive(trained_run, tmp_path, capsys):
    file, prefixes = tmp_path / "in", tmp_path / "prefixes"
    file.write_text("".join(f"{line}\n" for line in trained_run.lines("train.en")[:3]))
    prefixes.write_text("Am Montag\n\nDie Frau\n")
    begun = [
        translated(capsys, trained_run.path, file, "--prefix-file", str(prefixes), *options)
        for options in ([], ["--line-buffered"])
    ]
    assert begun[0] == begun[1]
    assert begun[0][2].startswith("Die Frau")


@pytest.mark.parametrize(
    ("task", "command"), [("parser", ["parse", "run"]), ("classifier", ["classify", "run"])]
)
def test_other_commands_answer_the_same_either_way(task, command, request, capsys):
    request.getfixturevalue(task)
    Path("in").write_text("a cat sleeps .\n\nthe cat sleeps .\n")
    printed = []
    for options in ([], ["--line-buffered"]):
        with stdin_of(Path("in")):
            assert main([*command, *options]) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1]
    assert printed[0].count("\n") == 3


@pytest.mark.parametrize(
    ("task", "line"),
    [
        ("parser", "parse run --words-of dev.ptb"),
        ("classifier", "classify run --labelled dev.tsv"),
    ],
)
def test_files_do_not_arrive(task, line, request, capsys):
    request.getfixturevalue(task)
    assert_refused(
        capsys, [*line.split(), "--line-buffered"], "--line-buffered is for stdin", status=1
    )
