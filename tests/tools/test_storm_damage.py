"""The storm of damage finds no failure, and detects broken promises."""

import random
import shutil

import pytest

from tools.storm.damage import COMMANDS, DAMAGE, attempt, damage, judge, of_folder
from tools.storm.lab import Done, Lab

QUICK = {"curves": COMMANDS["curves"]}


@pytest.fixture
def lab(tmp_path) -> Lab:
    return Lab(tmp_path, seed=3)


def test_damage_to_a_run_is_reported_or_harmless(lab, trained_run):
    """With the quickest command; the others are left to storms started by hand."""
    folder = lab.folder / "base"
    shutil.copytree(trained_run.path, folder / "run")
    (folder / "texts").mkdir()
    shutil.copy(trained_run.corpus / "dev.en", folder / "texts")
    base = of_folder(lab, folder, QUICK)
    for _ in range(3):
        outcome = attempt(lab, base, "curves")
        assert outcome.held, outcome.detail


@pytest.mark.parametrize(
    ("done", "right", "word"),
    [
        (Done(None, "", ""), True, "no end"),
        (Done(1, "", "Traceback (most recent call last)\nerror: x\n"), True, "traceback"),
        (Done(-11, "", ""), True, "status -11"),
        (Done(1, "", ""), True, "0 error lines"),
        (Done(1, "", "error: x\nerror: y\n"), True, "2 error lines"),
        (Done(0, "other words", ""), False, "silently another result"),
        (Done(0, "the words", ""), True, ""),
        (Done(0, "", "best.npz is gone: restored from step-00000002.npz"), False, ""),
        (Done(1, "", "error: tokenizer.model is damaged\n"), False, ""),
    ],
)
def test_only_a_broken_promise_is_detected(done, right, word):
    found = judge(done, right)
    assert word in found and bool(word) == bool(found)


@pytest.mark.parametrize("name", DAMAGE)
@pytest.mark.parametrize("content", [b"", b"x", b"one\ntwo\nthree\n" * 99])
def test_every_kind_of_damage_applies_to_every_file(tmp_path, name, content):
    path = tmp_path / "file"
    for seed in range(20):
        path.write_bytes(content)
        damage(path, name, random.Random(seed))
        assert path.exists() == (name != "delete")
