"""What is shown and decided while `fit` runs."""

import re

import keras
import pytest
from fake_task import FakeTask

from tf_transformer.config import Config, TrainingConfig
from tf_transformer.run import Run
from tf_transformer.training.callbacks import (
    Evaluation,
    ProgressBar,
    StepLimit,
    best_bleu,
    patience_used_up,
)
from tf_transformer.training.trainer import compile_model


def records(*scores: float) -> list[dict[str, float]]:
    return [{"valid_bleu": score} for score in scores]


def fit(run: Run, task: FakeTask, callbacks: list[keras.callbacks.Callback]) -> keras.Model:
    """Two epochs of two steps."""
    model = task.build_model()
    compile_model(model, run.config)
    model.fit(
        task.training_data(0),
        validation_data=task.validation_data(),
        epochs=2,
        steps_per_epoch=2,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )
    return model


@pytest.fixture
def run(tmp_path) -> Run:
    return Run(tmp_path, Config(training=TrainingConfig(warmup_steps=9)))


def test_best_bleu_is_the_highest():
    assert best_bleu(records(10.0, 30.0, 20.0)) == 30.0


def test_any_score_is_better_than_none():
    assert best_bleu(records()) < 0.0


@pytest.mark.parametrize(
    ("scores", "patience", "used_up"),
    [
        ([], 1, False),
        ([10], 1, False),
        ([10, 20], 1, False),
        ([20, 10], 1, True),
        ([10, 10], 1, True),  # equal is not better
        ([30, 10, 20], 2, True),
        ([30, 10, 20], 3, False),
        ([10, 30, 20], 2, False),
        ([30, 10, 20, 31], 2, False),
        ([30, 20, 10, 0], 0, False),  # 0 is off
    ],
)
def test_patience_counts_evaluations_without_a_better_score(scores, patience, used_up):
    assert patience_used_up(records(*scores), patience) is used_up


def test_the_console_shows_a_bar_and_one_line_an_evaluation(run, capsys, caplog, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    caplog.set_level("INFO", "tf_transformer")
    task = FakeTask(iter([30.0, 20.0]))
    model = fit(run, task, [ProgressBar(1), Evaluation(run, task.evaluator(None))])
    bar = capsys.readouterr().err
    # Steps of milliseconds: the bar draws the first of them at least.
    for name in ("1/2", "loss", "perplexity", "tokens/s"):
        assert name in bar
    rates = re.findall(r"learning rate (\d\S+e-\d\d)", bar)
    after_first_step = model.optimizer.get_config()["learning_rate"]
    schedule = keras.optimizers.schedules.deserialize(after_first_step)
    assert float(rates[0]) == pytest.approx(float(schedule(1)), rel=1e-2)
    first, second = caplog.messages
    assert re.fullmatch(
        r"step +2  loss \d.*  perplexity \d.*  dev perplexity \d.*  dev BLEU 30.00  "
        r"[\d,]+ tokens/s  best",
        first,
    )
    assert re.fullmatch(r"step +4 .* dev BLEU 20.00 .* tokens/s", second)


def test_a_bar_that_is_off_prints_nothing_and_a_step_limit_ends_an_epoch(run, capsys):
    task = FakeTask(iter(()))
    model = fit(run, task, [ProgressBar(0), StepLimit(3)])
    assert capsys.readouterr() == ("", "")
    assert int(model.optimizer.iterations) == 3
