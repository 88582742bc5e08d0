"""Damaged files and full disks give one line of error and lose nothing."""

import os
import re
import shutil
import sys
from pathlib import Path

import pytest
from command_line import assert_refused

from tf_transformer.cli.main import main

TRAIN = (
    "train --train train --valid dev --source en --target de --output new "
    "--set model.vocab_size=400"
)


def test_a_damaged_checkpoint_is_refused(workplace, capsys):
    path = Path("run/checkpoints/best.npz")
    data = bytearray(path.read_bytes())
    data[len(data) // 10] ^= 1
    path.write_bytes(data)
    assert_refused(capsys, ["translate", "run"], "checkpoint .*best.npz is damaged", status=1)


@pytest.mark.parametrize(
    ("line", "size", "expected"),
    [
        (TRAIN, 100, "Cannot write new/config.json: File too large"),
        (TRAIN, 4_000, "Cannot write new/tokenizer.model: File too large"),
        (
            "tokenizer train.en --vocab-size 400 --output new.model",
            99,
            "Cannot write new.model",
        ),
        ("evaluate run --source dev.en --reference dev.de --output out", 9, "Cannot write out"),
        ("curves run --output curves.png", 99, "Cannot write curves.png"),
        ("export run --no-text --output models", 99_000, "Cannot write models/4"),
    ],
)
def test_a_full_disk_gives_one_line(workplace, capsys, largest_file, line, size, expected):
    with largest_file(size):
        assert_refused(capsys, line.split(), f"^error: {re.escape(expected)}", status=1)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_full_disk_behind_stdout_gives_one_line(workplace, capsys, monkeypatch):
    with open("/dev/full", "w", buffering=1) as full:
        monkeypatch.setattr(sys, "stdout", full)
        assert main(["evaluate", "--hypothesis", "dev.de", "--reference", "dev.de"]) == 1
    assert capsys.readouterr().err == "error: No space left on device\n"


@pytest.mark.parametrize("command", ["curves run", "card run"])
def test_an_invalid_line_of_the_metrics_is_named(workplace, capsys, command):
    with Path("run/metrics.jsonl").open("a") as file:
        file.write("null\n")
    assert_refused(
        capsys, command.split(), "^error: run/metrics.jsonl:4: expected a ", status=1
    )


EVERY_COMMAND = (
    "train", "translate run", "evaluate run --source dev.en --reference dev.de", "card run",
    "score run --source dev.en --target dev.de", "average run", "curves run",
    "doctor run", "export run --output new",
    "attention run Hello --output new.png",
)  # fmt: skip


@pytest.mark.parametrize("command", EVERY_COMMAND)
def test_a_run_with_a_changed_task_is_refused(workplace, trained_run, capsys, command):
    config = Path("run/config.json")
    config.write_text(config.read_text().replace("{", '{"task": "classification",', 1))
    arguments = command.split()
    if command == "train":
        arguments = ["train", *trained_run.options, "--output", "run"]
    assert_refused(capsys, arguments, "task", status=1)


def test_changed_training_text_needs_accept_new_data(
    workplace, trained_run, capsys, monkeypatch
):
    """The changed text has the same number of lines and bytes, and the same time."""
    options = [*trained_run.options[2 * 4 :], "--output", "run", "--set", "training.steps=300"]
    options += ["--source", "en", "--target", "de", "--train", "train", "--valid", "same"]
    for language in ("en", "de"):
        shutil.copy(trained_run.corpus / f"dev.{language}", f"same.{language}")
    file, lines = Path("train.en"), trained_run.lines("train.en")
    state = file.stat()
    file.write_text("".join(f"{line}\n" for line in reversed(lines)), "utf-8")
    os.utime(file, ns=(state.st_atime_ns, state.st_mtime_ns))
    expected = r"run was trained on .*/train\. Received other text: train\. .*`accept_new_data`"
    assert_refused(capsys, ["train", *options], expected, status=1)
    assert main(["train", *options, "--accept-new-data", "--stop-after", "1 steps"]) == 0
    printed = capsys.readouterr().out
    assert "from step 240 on, training text is " in printed
    assert "from step 240 on, training.steps is 300, was 240" in printed
    assert "(the same text)" in printed  # the dev text has only moved
    assert "data/train is encoded again: " in printed
    assert main(["card", "run"]) == 0
    card = re.sub(" +", " ", capsys.readouterr().out)
    assert "| 240 | training text | " in card
    assert "| 240 | training.steps | 240 | 300 |" in card
