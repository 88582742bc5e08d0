"""Fine-tuning by the command line: weights trained and kept, resuming, use and reports."""

import json
from pathlib import Path

import numpy as np
import pytest
from command_line import assert_refused, translated

from tf_transformer.cli.main import main
from tf_transformer.run import Run
from tools.storm.lab import set_options

STEPS = set_options(
    "training.steps=6", "training.evaluate_every=6",
    "decoding.beam_size=1", "decoding.max_extra_length=2",
)  # fmt: skip


@pytest.fixture
def corpus(trained_run, tmp_path) -> Path:
    """The current folder, with new.en and new.de, the run's text with other words."""
    for language in ("en", "de"):
        lines = [f"{line[:-1]} 42" for line in trained_run.lines(f"train.{language}")[:60]]
        Path(f"new.{language}").write_text("".join(f"{line}\n" for line in lines), "utf-8")
    return tmp_path


def tune(source: Path, output: str, *options: str) -> int:
    data = ["--train", "new", "--valid", "new"]
    return main(
        ["train", "--init-from", str(source), *data, *STEPS, "--output", output, *options]
    )


def weights(run: Path, kind: str = "step") -> dict[str, np.ndarray]:
    return dict(np.load(Run.open(run).path / "checkpoints" / f"{kind}-00000006.npz"))


def test_fine_tuning_resumes_bit_for_bit_and_changes_no_other_weights(
    trained_run, corpus, capsys
):
    options = ("--freeze", "encoder", "--lora", "2")
    assert tune(trained_run.path, "whole", *options) == 0
    printed = capsys.readouterr().out
    assert "the dev set of" in printed and "of them trained" in printed
    assert tune(trained_run.path, "cut", *options, "--stop-after", "4 steps") == 0
    assert tune(trained_run.path, "cut", *options) == 0
    whole, cut = (weights(Path(name), "state") for name in ("whole", "cut"))
    assert whole.keys() == cut.keys()
    for name in whole:
        if not name.startswith("progress/"):  # which has seconds
            np.testing.assert_array_equal(whole[name], cut[name], err_msg=name)
    before = dict(np.load(trained_run.path / "checkpoints" / "best.npz"))
    after = weights(Path("cut"))
    assert not any("lora" in name for name in after)
    assert {
        name
        for name in after
        if name.startswith("model/") and not np.array_equal(before[name], after[name])
    } == {
        name
        for name in after
        if name.startswith("model/decoder/") and name.endswith(("kernel", "bias"))
    }
    card = Path("cut/card.md").read_text("utf-8")
    assert f"It began with the weights of {trained_run.path}." in card
    assert "Not trained: encoder." in card
    assert "Trained: adapters of rank 2 (LoRA), then merged." in card
    record = json.loads(Path("cut/metrics.jsonl").read_text().splitlines()[-1])
    assert record["valid_old_bleu"] > record["valid_bleu"]  # it was trained on the old text
    capsys.readouterr()
    assert len(translated(capsys, Path("cut"), Path("new.en"))) == 60


@pytest.mark.parametrize(
    ("options", "expected", "status"),
    [
        ("--output x --freeze encoders", "'encoders' matches no weight. There are: emb", 1),
        ("--output x --set model.d_ff=32", "`model.d_ff` must be 128", 1),
        ("--output x --lora 0.5", "--lora must be an int from 0", 2),
        ("--output {run}", "cannot begin with its own weights", 1),
    ],
)
def test_impossible_fine_tuning_is_refused(
    trained_run, corpus, capsys, options, expected, status
):
    run = str(trained_run.path)
    words = ["train", "--init-from", run, "--train", "new", "--valid", "new"]
    words += options.format(run=run).split()
    assert_refused(capsys, words, expected, status=status)


def test_freezing_needs_trained_weights(corpus, capsys):
    words = ["train", "--freeze", "encoder", "--output", "x"]
    assert_refused(capsys, words, "set `training.init_from` to it", status=1)
