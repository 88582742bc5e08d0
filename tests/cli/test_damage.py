"""Damaged checkpoints and full disks: one line, and what was there before is still there."""

import re
import subprocess
from pathlib import Path

import pytest
from command_line import TF_TRANSFORMER, assert_refused, environment, tree

from tf_transformer.cli.main import main

TRAIN = (
    "train --train train --valid dev --source en --target de --output new "
    "--set model.vocab_size=400"
)


@pytest.mark.parametrize("damage", ["cut", "emptied", "a byte changed", "something else"])
def test_a_damaged_checkpoint_is_refused(workplace, capsys, damage):
    path = Path("run/checkpoints/best.npz")
    data = bytearray(path.read_bytes())
    data[len(data) // 10] ^= 1
    contents = {
        "cut": data[:-1000],
        "emptied": b"",
        "a byte changed": bytes(data),
        "something else": b"no archive at all",
    }
    path.write_bytes(contents[damage])
    assert_refused(capsys, ["translate", "run"], "checkpoint .*best.npz is damaged")


def test_a_checkpoint_of_another_model_is_refused(workplace, capsys):
    config = Path("run/config.json")
    config.write_text(config.read_text().replace('"num_layers": 1', '"num_layers": 2'))
    assert_refused(capsys, ["translate", "run"], "is of another model. Expected model/")


@pytest.mark.parametrize(
    ("line", "size", "expected"),
    [
        (TRAIN, 100, "Cannot write new/config.json: File too large"),
        (TRAIN, 100_000, "Cannot write new/tokenizer.model: File too large"),
        (
            "tokenizer train.en --vocab-size 400 --output new.model",
            99,
            "Cannot write new.model",
        ),
        ("evaluate run --source dev.en --reference dev.de --output out", 9, "Cannot write out"),
        ("curves run --output curves.png", 99, "Cannot write curves.png"),
        ("export run --output models", 99_000, "Cannot write models/4"),
    ],
)
def test_a_full_disk_is_one_line(workplace, capsys, largest_file, line, size, expected):
    with largest_file(size):
        assert_refused(capsys, line.split(), f"^error: {re.escape(expected)}")


def test_a_full_disk_while_training_leaves_all_checkpoints(
    workplace, trained_run, capsys, largest_file
):
    before = tree(Path("run/checkpoints"))
    arguments = ["train", *trained_run.options, "--output", "run"]
    with largest_file(1_000_000):  # less than a checkpoint
        assert main([*arguments, "--set", "training.steps=242"]) == 1
    assert re.fullmatch("error: Cannot write run/checkpoints/.*\n", capsys.readouterr().err)
    assert tree(Path("run/checkpoints")) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a full device")
def test_a_full_disk_under_the_output_is_one_line(workplace):
    command = [*TF_TRANSFORMER, "evaluate", "--hypothesis", "dev.de", "--reference", "dev.de"]
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, stdout=full, stderr=subprocess.PIPE, env=environment(), check=False
        )
    assert done.returncode == 1
    assert done.stderr == b"error: No space left on device\n"
