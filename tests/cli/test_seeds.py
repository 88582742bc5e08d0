"""`train --seeds`: a run per seed, resumed without training finished ones again."""

import re
from pathlib import Path

import numpy as np
import pytest
from command_line import assert_refused, environment

from tf_transformer.cli.main import main
from tf_transformer.run import Run
from tf_transformer.run.run import what_is_unfinished

SMALL = (
    "model.vocab_size=400", "model.num_layers=1", "model.d_model=16", "model.d_ff=16",
    "model.num_heads=2", "training.steps=4", "training.evaluate_every=4",
    "training.average_last=1", "training.batch_tokens=256", "decoding.beam_size=1",
    "decoding.max_extra_length=2",
)  # fmt: skip


@pytest.fixture
def words(trained_run, tmp_path, monkeypatch) -> list[str]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", environment()["PYTHONPATH"])
    Path("small.yaml").write_text("".join(f"{each.replace('=', ': ')}\n" for each in SMALL))
    dev = str(trained_run.corpus / "dev")
    data = ["--train", dev, "--valid", dev, "--source", "en", "--target", "de"]
    return ["train", "--config", "small.yaml", *data]


def test_each_seed_is_trained_once_and_a_summary_is_printed(words, capfd):
    both = [*words, "--seeds", "3,4", "--output", "all"]
    assert main([*both, "--stop-after", "0.0000001s"]) == 0
    assert "run the same command again to resume" in capfd.readouterr().out
    assert main([*words, "--set", "training.seed=3", "--output", "all/seed-3"]) == 0
    kept = Path("all/seed-3/checkpoints/best.npz").stat().st_mtime_ns
    capfd.readouterr()
    assert main(both) == 0
    printed = capfd.readouterr().out
    assert "resuming" not in printed and "finished at" not in printed
    assert Path("all/seed-3/checkpoints/best.npz").stat().st_mtime_ns == kept
    assert [Run.open(f"all/seed-{n}").config.training.seed for n in (3, 4)] == [3, 4]
    table = Path("all/seeds.md").read_text("utf-8")
    rows = [re.findall(r"[^|\s]+", line) for line in table.splitlines()]
    columns = dict(zip(rows[0], zip(*rows[2:], strict=True), strict=True))
    assert columns["seed"] == ("3", "4", "mean", "deviation")
    one, other, mean, deviation = map(float, columns["perplexity"])
    assert mean == pytest.approx(np.mean([one, other]), abs=1e-4)
    assert deviation == pytest.approx(np.std([one, other], ddof=1), abs=2e-4)
    assert one != other and table in printed

    Path("all/seed-3/checkpoints/best.npz").unlink()
    assert main(both) == 1
    assert "seed-3 must have the scores of its best weights" in capfd.readouterr().err
    assert main([*both, "--seeds", "3,4,5", "--set", "model.dropout=0.3"]) == 1
    assert "another configuration: model.dropout was 0.1, now 0.3" in capfd.readouterr().err
    run = Run.open("all/seed-4")
    assert not what_is_unfinished(run, run.config.training.steps)
    run.checkpoints.average.unlink()  # as if it had not finished
    assert what_is_unfinished(run, run.config.training.steps)


@pytest.mark.parametrize(
    ("options", "status", "expected"),
    [
        (["--seeds", "1"], 2, "--seeds must be different seeds such as 1,2,3. Received: '1'"),
        (["--seeds", "1,1"], 2, "must be different seeds"),
        (["--seeds", "1,x"], 2, "must be an int from 0"),
        (["--seeds", "1,2", "--set", "training.seed=3"], 1, "--seeds or --set training.seed"),
        (["--seeds", "1,2", "--stop-after", "5 steps"], 1, "--seeds stops after a time"),
        (["--seeds", "1,2", "--output", "taken"], 1, "not created by `train --seeds`"),
        (["--config", "nowhere.yaml"], 1, "nowhere.yaml cannot be read"),
    ],
)
def test_options_that_exclude_seeds_are_refused(words, capsys, options, status, expected):
    Path("taken").mkdir()
    Path("taken/thesis").touch()
    assert_refused(capsys, [*words, *options], expected, status=status)
