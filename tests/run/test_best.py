"""The best weights of a run: chosen, restored when lost, and what stands beside them."""

from pathlib import Path

import numpy as np
import pytest

from tf_transformer.config import Config
from tf_transformer.run import Run
from tf_transformer.run.best import BestWeights, Marks, add_record, read_marks, save_best
from tf_transformer.run.checkpoints import CheckpointFolder, read_arrays, write_arrays
from tf_transformer.run.run import NOT_EVALUATED, best_record, evaluation_of, what_is_unfinished

SCORES = {10: 30.0, 20: 66.6, 30: 51.4}


def evaluation(step: int, score: float, **more: object) -> dict[str, object]:
    record = {"step": step, "valid_bleu": score, "valid_perplexity": 9.0, "dev_set": "one"}
    return record | {"train_seconds": 3.0, "tokens_per_second": 400.0} | more


HISTORY = [evaluation(step, score) for step, score in SCORES.items()]


@pytest.fixture
def three(tmp_path) -> CheckpointFolder:
    """Three steps whose weights equal their number, and the best of them."""
    folder = CheckpointFolder(tmp_path)
    for step in SCORES:
        write_arrays(folder.step_path(step), {"model/w": np.full(3, step, np.float32)})
    save_best(folder.step_path(20), folder.best, {"bleu": 66.6}, "one")
    return folder


@pytest.fixture
def best(three) -> BestWeights:
    return BestWeights(three, "bleu", "one")


def best_step(folder: CheckpointFolder) -> int:
    return int(read_arrays(folder.best)["model/w"][0])


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_best_weights_hold_the_scores_that_chose_them(tmp_path):
    source, best = tmp_path / "a.npz", tmp_path / "best.npz"
    assert read_marks(best) is None
    write_arrays(source, {"model/w": np.full(3, 1.5, np.float32)})
    save_best(source, best, {"bleu": 30.5}, "dev")
    assert read_marks(best) == Marks({}, {"bleu": 30.5}, "dev")
    assert read_arrays(best)["model/w"].tolist() == [1.5] * 3
    best.write_bytes(best.read_bytes()[:-9])
    assert read_marks(best) is None


def test_intact_best_weights_are_kept_silently(three, best, caplog):
    before = three.best.read_bytes()
    best.mend(HISTORY)
    best.mend([])
    assert three.best.read_bytes() == before
    assert caplog.messages == []


def test_an_evaluation_reads_the_best_weights_once(three, best, opened):
    assert not best.offer(three.step_path(30), evaluation(40, 50.0), HISTORY)
    assert opened == {"best.npz": 1, "start.npz": 1}
    assert best.offer(three.step_path(30), evaluation(40, 70.0), HISTORY)
    assert (opened["best.npz"], opened["step-00000030.npz"]) == (2, 1)


def test_the_evaluation_of_best_weights_is_found_by_reading_them_once(tmp_path, opened):
    run = Run(tmp_path, Config())
    run.checkpoints.path.mkdir()
    run.write_history(HISTORY)
    source = run.checkpoints.step_path(20)
    write_arrays(source, {"model/w": np.ones(3)})
    save_best(source, run.checkpoints.best, {"bleu": 66.6}, "one")
    opened.clear()
    assert evaluation_of(run, run.checkpoints.best)["step"] == 20
    assert opened["best.npz"] == 1


@pytest.mark.parametrize(("damage", "word"), [(flip, "is damaged"), (Path.unlink, "is gone")])
def test_lost_best_weights_are_restored_from_their_step(three, best, caplog, damage, word):
    damage(three.best)
    assert not best.offer(three.step_path(30), evaluation(40, 60.0), HISTORY)
    scores = {"bleu": 66.6, "perplexity": -9.0}
    assert (best_step(three), read_marks(three.best).scores) == (20, scores)
    assert caplog.messages == [f"{three.best} {word}: restored from step-00000020.npz"]


@pytest.mark.parametrize("damage", [flip, Path.unlink])
def test_if_the_best_step_is_not_kept_the_loss_is_reported(three, best, caplog, damage):
    three.best.unlink()
    damage(three.step_path(20))
    best.mend(HISTORY)
    assert best_step(three) == 30
    assert "step-00000030.npz; better ones, of step 20, are no longer kept" in caplog.text
    best.mend(HISTORY)
    assert len(caplog.messages) == 1  # not repeated


def test_if_nothing_is_kept_the_next_evaluation_is_the_best(three, best, caplog):
    for path in (three.best, *map(three.step_path, SCORES)):
        path.unlink()
    write_arrays(three.step_path(40), {"model/w": np.full(3, 40, np.float32)})
    assert best.offer(three.step_path(40), evaluation(40, 10.0), HISTORY)
    assert best_step(three) == 40
    assert "the next evaluation replaces it" in caplog.text


def test_higher_scores_on_an_earlier_dev_set_do_not_replace_the_best(three):
    best = BestWeights(three, "bleu", "two")
    assert best.offer(three.step_path(30), evaluation(40, 10.0, dev_set="two"), HISTORY)
    assert (best_step(three), read_marks(three.best).dev_set) == (30, "two")
    history = [*HISTORY, evaluation(40, 10.0, dev_set="two")]
    assert not best.offer(three.step_path(10), evaluation(50, 5.0), history)


@pytest.mark.parametrize(
    ("scores", "patience", "used_up"),
    [
        ([], 1, False),
        ([10, 20], 1, False),
        ([20, 10], 1, True),
        ([10, 10], 1, True),  # equal is not better
        ([30, 10, 20], 2, True),
        ([30, 10, 20], 3, False),
        ([30, 20, 10, 0], 0, False),  # 0 is off
    ],
)
def test_patience_counts_evaluations_without_a_better_score(best, scores, patience, used_up):
    records = [evaluation(step, score) for step, score in enumerate(scores)]
    assert best.patience_used_up(records, patience) is used_up
    foreign = evaluation(99, 99.0, dev_set="another")
    assert best.patience_used_up([*records, foreign], patience) is used_up


# BLEU and perplexity of successive evaluations, and the step of the best.
NOISE = [
    ([(0.05, 680.0), (0.02, 500.0), (0.0, 267.0)], 30, False),
    ([(0.0, 500.0), (0.0, 680.0), (0.0, 600.0)], 10, True),
    ([(0.99, 200.0), (1.0, 500.0), (0.5, 100.0)], 20, False),  # a score of 1 is none of noise
    ([(30.0, 9.0), (30.0, 3.0), (29.0, 2.0)], 10, True),
]


@pytest.mark.parametrize("before", ["this", "1.0.0"])
@pytest.mark.parametrize(("values", "step", "used_up"), NOISE)
def test_perplexity_decides_below_bleu_1(three, caplog, values, step, used_up, before):
    """1.0.0 wrote the score alone, of weights that it had chosen by it."""
    caplog.set_level("INFO")
    history = [
        evaluation(10 * n, bleu, valid_perplexity=perplexity)
        for n, (bleu, perplexity) in enumerate(values, start=1)
    ]
    three.best.unlink()
    best = BestWeights(three, "bleu", "one")
    if before == "1.0.0":
        first = max(history, key=lambda record: record["valid_bleu"])
        scores = {"bleu": first["valid_bleu"]}
        save_best(three.step_path(first["step"]), three.best, scores, "one")
        best.mend(history)
    else:
        for n, record in enumerate(history):
            best.offer(three.step_path(record["step"]), record, history[:n])
        said = [m for m in caplog.messages if "perplexity decides which weights" in m]
        assert len(said) == (values[0][0] < 1)
    assert best_step(three) == step
    assert best.patience_used_up(history, 2) is used_up
    run = Run(three.path.parent, Config())
    run.checkpoints = three
    run.write_history(history)
    assert evaluation_of(run, three.best)["step"] == step
    assert best_record(run)["step"] == step


def test_a_run_is_finished_when_the_average_of_its_last_step_is_evaluated(tmp_path):
    run = Run(tmp_path, Config())
    run.checkpoints.path.mkdir()
    run.write_history([evaluation(20, 50.0, valid_perplexity=2.0)])
    assert what_is_unfinished(run, 20) == "its average.npz is missing"
    write_arrays(run.checkpoints.average, {"model/w": np.ones(3)})
    assert what_is_unfinished(run, 20) == NOT_EVALUATED
    add_record(run.checkpoints.average, evaluation(20, 60.0))
    assert what_is_unfinished(run, 20) == ""
    run.write_history([evaluation(30, 60.0, valid_perplexity=2.0)])
    assert what_is_unfinished(run, 30) == "its training has not ended"  # an older average


def test_a_run_on_the_built_in_corpus_is_finished_when_its_patience_is_used_up(tmp_path):
    """Its dev text is in no record of files."""
    run = Run(tmp_path, Config().replace({"training.patience": 1}))
    run.checkpoints.path.mkdir()
    two = [evaluation(step, 60.0, valid_perplexity=2.0) for step in (20, 30)]
    run.write_history(two)
    write_arrays(run.checkpoints.average, {"model/w": np.ones(3)})
    add_record(run.checkpoints.average, evaluation(30, 50.0))
    assert what_is_unfinished(run, 99) == ""
    run.write_history([two[0], two[1] | {"valid_bleu": 70.0}])
    assert what_is_unfinished(run, 99) == "its training has not ended"
