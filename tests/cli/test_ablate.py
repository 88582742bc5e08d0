"""`ablate`: rows as ordinary runs with a shared tokenizer and corpus, and the table."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from command_line import RelayHere, assert_refused
from helpers import bits_of

from tf_transformer.cli.main import main
from tf_transformer.config.presets import train_command
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.paper.ablation import ROWS
from tf_transformer.run import Run
from tf_transformer.training import sessions
from tools.storm.lab import set_options

# One layer, which excludes the C rows, of two or more layers.
SETTINGS = (
    "model.vocab_size=400",
    "model.num_layers=1",
    "training.evaluate_every=6",
    "training.warmup_steps=4",
    "decoding.beam_size=1",
    "decoding.max_extra_length=2",
)
TRAINED = ["base", "A-h4"]


@pytest.fixture(autouse=True, scope="module")
def rows_in_this_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sessions, "Relay", RelayHere)
        yield


@pytest.fixture(scope="module")
def arguments(trained_run):
    words = ["ablate", "--scale", "16", "--steps", "6", "--batch-tokens", "512"]
    words += ["--train", str(trained_run.corpus / "train")]
    words += ["--valid", str(trained_run.corpus / "dev"), "--source", "en", "--target", "de"]
    return words + set_options(*SETTINGS)


@pytest.fixture(scope="module")
def finished(arguments, tmp_path_factory):
    """The folder of two finished rows."""
    output = tmp_path_factory.mktemp("ablation") / "rows"
    assert main([*arguments, "--rows", *TRAINED, "--output", str(output)]) == 0
    return output


@pytest.fixture
def copy(finished, tmp_path):
    return Path(shutil.copytree(finished, tmp_path / "rows", symlinks=True))


def test_every_row_is_a_run_with_a_card_on_the_shared_corpus(finished):
    assert sorted(path.name for path in finished.iterdir()) == [
        ".lock", "A-h4-seed1", "base-seed1", "base.json", "data", "table3.md",
        "table3.png", "table3.svg", "tokenizer.model",
    ]  # fmt: skip
    for row, heads in zip(TRAINED, (8, 4), strict=True):
        run = Run.open(finished / f"{row}-seed1")
        assert (run.config.model.num_heads, run.config.model.d_model) == (heads, 32)
        assert run.checkpoints.steps() == [6]
        assert (run.path / "card.md").is_file()
        assert f"{run.history()[-1]['valid_bleu']:.2f} " in (
            (finished / "table3.md").read_text("utf-8")
        )
        assert run.tokenizer.read_bytes() == (finished / "tokenizer.model").read_bytes()
        assert run.data.resolve() == (finished / "data").resolve()


def test_train_with_the_settings_of_a_row_gives_the_same_weights(finished, tmp_path):
    run = Run.open(finished / "A-h4-seed1")
    command = train_command(run.config).split()[2:]
    assert main(["train", *command, "--output", str(tmp_path / "alone")]) == 0
    alone = Run.open(tmp_path / "alone")
    assert bits_of(alone.checkpoints.step_path(6)) == bits_of(run.checkpoints.step_path(6))


def test_finished_rows_are_kept_and_a_killed_row_is_resumed(arguments, copy, capfd):
    """In a folder that has moved; --stop-after delays the training of the killed row."""
    rows = (Run.open(copy / f"{row}-seed1") for row in ("A-h4", "base"))
    killed, finished = (run.checkpoints.average for run in rows)
    killed.unlink()  # as if it had not finished
    before = finished.stat().st_mtime_ns
    again = [*arguments, "--rows", *TRAINED, "--output", str(copy)]
    assert main([*again, "--stop-after", "0.0000001s"]) == 0
    assert "run the same command again to resume" in capfd.readouterr().out
    assert not killed.exists()
    assert main(again) == 0
    printed = capfd.readouterr().out
    assert f"{copy}/A-h4-seed1" in printed and "finished at step 6;" in printed
    assert f"{copy}/base-seed1" not in printed
    assert finished.stat().st_mtime_ns == before
    assert killed.exists()


def test_the_table_shows_each_row_with_its_change(copy, capsys):
    assert main(["ablate", "--table", "--output", str(copy)]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\| A-h4 +\| h 4, d_k 8, d_v 8 +\|", printed)
    assert printed.strip() == (copy / "table3.md").read_text("utf-8").strip()


def test_a_failing_row_does_not_stop_the_others(arguments, copy, capsys):
    for path in ("base-seed1", "table3.md", "table3.png"):
        (copy / path).rename(copy.parent / path)
    (copy / "base-seed1").mkdir()
    (copy / "base-seed1" / "thesis").touch()
    assert main([*arguments, "--rows", *TRAINED, "--output", str(copy)]) == 1
    printed = capsys.readouterr().out
    assert "not created by `tf-transformer train`" in printed
    assert "base-seed1 failed, with status 1" in printed
    assert re.search(r"\| A-h4 ", printed)
    assert "A-h4" in (copy / "table3.md").read_text("utf-8")
    assert not (copy / "table3.png").exists()  # no base, no differences


def test_params_only_needs_no_data(tmp_path, capsys):
    assert main(["ablate", "--params-only"]) == 0
    printed = capsys.readouterr().out
    assert re.search(r"\| base +\| +\| 63,045,632 +\| 63\.0 ", printed)
    assert all(f"| {row} " in printed for row in ROWS)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("more", "expected", "status"),
    [
        (["--scale", "32"], "A-h32", 1),
        (["--rows", "Z"], "no row 'Z'", 1),
        (["--set", "model.dropout=0.5"], "undo", 1),
        (["--table", "--output", "nothing"], "no results yet", 1),
        (["--table", "--scale", "32"], "ablate-32 has no results yet", 1),
        (["--valid", "nothing"], "needs all of --train", 1),
        (["--seeds", "1", "-1"], "--seeds must be an int from 0", 2),
        (["--stop-after", "5 steps"], "ablate stops after a time", 1),
    ],
)
def test_mistakes_are_reported_before_any_work(more, expected, capsys, status):
    assert_refused(capsys, ["ablate", *more], expected, status=status)


def test_settings_can_be_corrected_before_the_first_row(arguments, tmp_path, capsys):
    """A tokenizer too large for the text is refused, and one of other settings not kept."""
    output = tmp_path / "rows"
    command = [*arguments, "--rows", "base", "--output", str(output)]
    assert main([*command, "--set", "model.vocab_size=30000"]) == 1
    assert ": --set model.vocab_size=" in capsys.readouterr().err
    stop = ["--stop-after", "0.0000001s"]  # after the tokenizer, before the row
    for size in (400, 360):
        assert main([*command, "--set", f"model.vocab_size={size}", *stop]) == 0
        assert Tokenizer(output / "tokenizer.model").vocab_size == size
    assert not (output / "base-seed1").exists()


def test_every_row_is_checked_before_the_first_is_trained(
    arguments, tmp_path, monkeypatch, capsys
):
    short = ["--set", "model.max_length=8"]
    rows = ["--rows", "base", "E", "--output", "rows"]
    assert_refused(capsys, [*arguments, *short, *rows], "when positions are learned", status=1)
    monkeypatch.setenv("TF_CONFIG", "{}")
    assert_refused(capsys, [*arguments, *rows], "run it without TF_CONFIG", status=1)
    assert not (tmp_path / "rows").exists()


def test_a_folder_with_other_content_is_refused(arguments, copy, capsys, monkeypatch):
    monkeypatch.chdir(copy)
    other = [*arguments, "--rows", "base", "--output", ".", "--set", "training.beta_2=0.9"]
    expected = "rows with other settings: training.beta_2 was 0.98, now 0.9"
    assert_refused(capsys, other, expected, status=1)
    ordinary = [*arguments, "--rows", "base", "--output", "base-seed1"]
    assert_refused(capsys, ordinary, "base-seed1 exists but was not created by", status=1)
