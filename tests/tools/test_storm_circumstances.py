"""The storm of circumstances: commands survive, and failures are detected."""

import pytest

from tools.storm.circumstances import attempt, damage, what_is_wrong
from tools.storm.lab import Done, Lab

TRACEBACK = "Traceback (most recent call last)"


@pytest.mark.parametrize(
    ("done", "wrong"),
    [
        (Done(0, "translation\n", "a warning\n"), ""),
        (Done(1, "", "a warning\nerror: no space left\n"), ""),
        (Done(None, "", ""), "did not end"),
        (Done(1, "", f"{TRACEBACK}:\n"), TRACEBACK),
        (Done(0, "", "--- Logging error ---\n"), "--- Logging error"),
        (Done(1, "", "killed\n"), "0 lines of error"),
        (Done(1, "", "error: one\nerror: two\n"), "2 lines of error"),
        (Done(-6, "", "error: one\n"), "1 lines of error"),
    ],
)
def test_a_wrong_end_is_detected(done, wrong):
    assert what_is_wrong(done) == wrong


def test_half_written_files_are_detected(trained_run, tmp_path):
    assert damage(trained_run.path, tmp_path / "none") == ""
    (tmp_path / "exported" / "1").mkdir(parents=True)
    assert "half an export" in damage(trained_run.path, tmp_path / "exported")
    (tmp_path / "run" / "checkpoints").mkdir(parents=True)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 1')
    assert "metrics.jsonl" in damage(tmp_path / "run", tmp_path / "none")
    (tmp_path / "run" / "checkpoints" / "best.npz").write_bytes(b"half")
    assert "best.npz" in damage(tmp_path / "run", tmp_path / "none")


def test_a_command_survives_the_circumstance(trained_run, tmp_path):
    outcome = attempt(Lab(tmp_path, 1), trained_run.path, [], "card", "full disk")
    assert outcome.what == "card, full disk"
    assert outcome.held, outcome.detail
