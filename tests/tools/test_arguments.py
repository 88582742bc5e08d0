"""The storm of arguments finds no failure, is repeatable, and reports failures."""

import itertools
import random
import re

import pytest

from tf_transformer.cli import console
from tools.storm import arguments
from tools.storm.lab import Done, Lab


def test_the_storm_finds_no_failure(tmp_path):
    outcomes = list(itertools.islice(arguments.tries(Lab(tmp_path, seed=5)), 19))
    assert all(outcome.held for outcome in outcomes), outcomes
    assert {outcome.what for outcome in outcomes} == {"broken files"}


def test_the_same_seed_writes_the_same_lines(tmp_path):
    lines = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        writer = arguments.Writer.over_broken_files(tmp_path / name, random.Random(1))
        lines.append([writer.line(random.Random(seed)) for seed in range(20)])
    assert lines[0] == lines[1]


def test_a_command_that_prints_two_lines_is_reported(tmp_path, monkeypatch):
    monkeypatch.setattr(console, "one_line", lambda message: f"{message}\nand more")
    outcomes = itertools.islice(arguments.tries(Lab(tmp_path, seed=5)), 19)
    broken = [outcome for outcome in outcomes if not outcome.held]
    assert broken
    assert broken[0].detail.startswith("tf-transformer ")


@pytest.mark.parametrize(
    ("done", "must_fail", "expected"),
    [
        (Done(0, "", ""), False, "^$"),
        (Done(1, "", "error: no.\n"), True, "^$"),
        (Done(0, "", ""), True, "status 0"),
        (Done(None, "", ""), False, "still running"),
        (Done(1, "", "Traceback (most recent call last):\nerror: x\n"), True, "Traceback"),
        (Done(70, "", "error: unexpected KeyError: x\n"), True, "KeyError"),
        (Done(1, "", "error: a\nb\n"), True, "no single line"),
        (Done(1, "", "error: a\nerror: b\n"), True, "no single line"),
        (Done(2, "", ""), True, "no single line"),
        (Done(1, "", f"error: {'x' * 9_000}\n"), True, "an error of 9007"),
    ],
)
def test_faults_are_described(done, must_fail, expected):
    assert re.search(expected, arguments.wrong(done, must_fail))
