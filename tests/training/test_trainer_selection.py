"""Which weights a run keeps and chooses, and when patience ends it."""

import itertools
from collections.abc import Callable
from pathlib import Path

import keras
import numpy as np
import pytest
from fake_task import FakeResult, FakeTask
from test_trainer import assert_same_training, losses, rising, train_run

from tf_transformer.run import Run
from tf_transformer.run.checkpoints import best_scores, read_arrays
from tf_transformer.training.sessions import Budget, Interrupted, Stopper

DECAY = 0.8


class WeighingTask(FakeTask):
    """Its dev score is the sum of squared weights, which identifies them."""

    def evaluator(self, model: keras.Model) -> Callable[[], FakeResult]:
        return lambda: FakeResult(
            sum_of_squares([v.numpy() for v in model.trainable_variables])
        )


def sum_of_squares(weights: list[np.ndarray]) -> float:
    return sum(float(np.sum(weight.astype("float64") ** 2)) for weight in weights)


def weights(path: Path) -> dict[str, np.ndarray]:
    return read_arrays(path, prefix="model/")


@pytest.fixture(scope="module")
def averaging(tmp_path_factory) -> Run:
    """An uninterrupted run of 6 steps that keeps a moving average."""
    path = tmp_path_factory.mktemp("runs") / "whole"
    return train_run(path, WeighingTask(iter(())), ema_decay=DECAY)


def test_kept_weights_are_the_moving_average_of_all_steps(tmp_path, averaging):
    """Trains one session per step; its state holds the raw weights."""
    average: dict[str, np.ndarray] = {}
    for step in range(1, 7):
        task = WeighingTask(iter(()))
        run = train_run(tmp_path, task, ema_decay=DECAY, steps=step, evaluate_every=2)
        raw = weights(run.checkpoints.state_path(step))
        for name, value in raw.items():
            average[name] = DECAY * average.get(name, value) + (1 - DECAY) * value
        if step % 2 == 0:
            kept = weights(run.checkpoints.step_path(step))
            for name, value in kept.items():
                np.testing.assert_allclose(value, average[name], atol=1e-6)
                assert np.abs(value - raw[name]).max() > 1e-4
    np.testing.assert_equal(kept, weights(averaging.checkpoints.step_path(6)))


def test_the_moving_average_is_evaluated(averaging):
    record = averaging.history()[-1]
    path = averaging.checkpoints.step_path(6)
    for name, value in losses(averaging, path).items():
        if name != "tokens":
            assert record[f"valid_{name}"] == pytest.approx(value)
    assert record["valid_bleu"] == pytest.approx(sum_of_squares(list(weights(path).values())))
    raw = weights(averaging.checkpoints.state_path(6))
    assert record["valid_bleu"] != pytest.approx(sum_of_squares(list(raw.values())))


@pytest.mark.parametrize("steps", [3, 4])
def test_an_interrupted_moving_average_resumes_bit_for_bit(tmp_path, averaging, steps):
    stopper = Stopper(Budget(steps=steps))
    with pytest.raises(Interrupted, match=f"at step {steps} by --stop-after"):
        train_run(tmp_path, WeighingTask(iter(())), stopper, ema_decay=DECAY)
    assert Run.open(tmp_path).checkpoints.state_steps()[-1] == steps
    resumed = train_run(tmp_path, WeighingTask(iter(())), ema_decay=DECAY)
    assert_same_training(resumed, averaging)


def test_an_interrupted_evaluation_of_the_average_leaves_the_weights(tmp_path, averaging):
    with pytest.raises(KeyboardInterrupt):
        train_run(tmp_path, FakeTask(iter([KeyboardInterrupt()])), ema_decay=DECAY)
    resumed = train_run(tmp_path, WeighingTask(iter(())), ema_decay=DECAY)
    assert_same_training(resumed, averaging)


def test_the_best_may_be_the_one_of_lowest_perplexity(tmp_path):
    """The dev score, which rises, would choose the last."""
    run = train_run(tmp_path, rising(), best_by="perplexity", steps=40, warmup_steps=400)
    best = read_arrays(run.checkpoints.best)
    candidates = [record["valid_perplexity"] for record in run.history()]
    candidates.append(losses(run, run.checkpoints.average)["perplexity"])
    assert -best["best/perplexity"] == pytest.approx(min(candidates))
    assert losses(run, run.checkpoints.best)["perplexity"] == pytest.approx(min(candidates))


def test_the_best_and_patience_may_depend_on_chrf(tmp_path):
    """By BLEU, the last would be the best, and training would continue."""
    recipe = {"best_by": "chrf", "patience": 2, "steps": 100, "keep_last": 3}
    run = train_run(tmp_path, rising(), **recipe)
    assert [record["step"] for record in run.history()] == [2, 4, 6]
    first = weights(run.checkpoints.step_path(2))
    np.testing.assert_equal(weights(run.checkpoints.best), first)


class OtherDevSet(FakeTask):
    dev_set = "two other batches"


def test_scores_on_an_earlier_dev_set_neither_choose_nor_end_training(tmp_path):
    """The higher scores of the first session would end the second at its first evaluation."""
    train_run(tmp_path, FakeTask(itertools.count(50.0)), steps=4)
    later = OtherDevSet(iter([20.0, 10.0, 5.0, 1.0, 20.0]))
    run = train_run(tmp_path, later, steps=100, patience=2)
    assert [(record["step"], record["dev_set"]) for record in run.history()] == [
        (2, "two batches"), (4, "two batches"),
        (6, "two other batches"), (8, "two other batches"), (10, "two other batches"),
    ]  # fmt: skip
    assert best_scores(run.checkpoints.best) == {"bleu": 20.0}


def test_best_weights_lost_between_two_sessions_are_restored(tmp_path, caplog):
    """Evaluations of 2, 4 and 6 steps; the first was the best."""
    task = FakeTask(iter([66.6, 51.4, 1.0, 66.6]))
    train_run(tmp_path, task, steps=4, keep_last=3).checkpoints.best.unlink()
    run = train_run(tmp_path, FakeTask(iter([51.4, 1.0, 66.6])), keep_last=3)
    first = weights(run.checkpoints.step_path(2))
    np.testing.assert_equal(weights(run.checkpoints.best), first)
    assert "best.npz is gone: restored from step-00000002.npz" in caplog.text
