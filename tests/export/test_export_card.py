"""The model card that an export carries: data, evaluations, origin of the weights."""

import shutil

import pytest

from tf_transformer.base.files import sha256
from tf_transformer.export.card import card_of
from tf_transformer.run import Run
from tf_transformer.run.best import save_best
from tf_transformer.run.run import evaluation_of


@pytest.fixture
def folder(trained_run, tmp_path):
    """A copy of the run, which tests may change."""
    return shutil.copytree(trained_run.path, tmp_path / "run")


def test_a_card_reports_missing_data_and_evaluations(folder, trained_run, tmp_path):
    gone = str(tmp_path / "gone")
    text = (folder / "config.json").read_text("utf-8")
    (folder / "config.json").write_text(text.replace(str(trained_run.corpus), gone))
    (folder / "metrics.jsonl").unlink()
    run = Run.open(folder)
    file = run.checkpoints.find("last")
    card = card_of(run, "last")()
    assert card["data"] == dict.fromkeys(
        [f"{gone}/{name}" for name in ("train.en", "train.de", "dev.en", "dev.de")],
        "not there at the time of the export",
    )
    assert card["best_evaluation"] is None
    assert card["evaluation_of_these_weights"] is None
    assert card["checkpoint"] == {"name": "last", "sha256": sha256(file)}


@pytest.mark.parametrize("step", [160, 240])
def test_a_card_has_the_evaluation_of_its_step(trained_run, step):
    run = Run.open(trained_run.path)
    (record,) = [record for record in run.history() if record["step"] == step]
    card = card_of(run, str(step))()
    assert card["evaluation_of_these_weights"].items() >= record.items()
    assert "tok:13a" in card["evaluation_of_these_weights"]["bleu_signature"]


def test_a_card_has_the_scores_of_averaged_weights(trained_run):
    run = Run.open(trained_run.path)
    card = card_of(run, "average")()
    record = card["evaluation_of_these_weights"]
    name, score = record["weights"], record["valid_bleu"]
    assert f"\n{name}: dev BLEU {score:.2f}\n" in trained_run.stdout
    assert record["step"] == 240 and record["valid_chrf"] > 0


def test_the_best_weights_have_the_evaluation_that_chose_them(folder):
    run = Run.open(folder)
    record = run.history()[0]
    best = run.checkpoints.best
    last, dev_set = run.checkpoints.find("last"), record["dev_set"]
    for score, expected in ((record["valid_bleu"], record["step"]), (1000.0, None)):
        save_best(last, best, {"bleu": score}, dev_set)  # 1000: of an average
        card = card_of(run, "best")()
        found = card["evaluation_of_these_weights"]
        assert (found and found["step"]) == expected


@pytest.mark.parametrize(("dev_set", "expected"), [("old", 80), ("new", 160)])
def test_an_equal_score_on_another_dev_set_does_not_count(folder, dev_set, expected):
    run = Run.open(folder)
    first, second, _ = run.history()
    assert (first["step"], second["step"]) == (80, 160)
    changed = [first | {"dev_set": "old"}, second | {"dev_set": "new"}]
    run.write_history([record | {"valid_bleu": 30.0} for record in changed])
    best = run.checkpoints.best
    save_best(run.checkpoints.find("last"), best, {"bleu": 30.0}, dev_set)
    assert evaluation_of(run, best)["step"] == expected
