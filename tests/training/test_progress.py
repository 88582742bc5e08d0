"""Progress of a run, where it resumes if its batches change, and the callbacks of `fit`."""

import fcntl
import os
import re
import struct
import sys
import termios
from dataclasses import replace
from pathlib import Path

import keras
import numpy as np
import pytest
from fake_task import FEATURES, VOCAB_SIZE, FakeTask, compiled_model

from tf_transformer.base.errors import UserError
from tf_transformer.config import Config, TrainingConfig
from tf_transformer.fast.optimizers import LossScaleOptimizer, step_of
from tf_transformer.models.token_model import TokenModel
from tf_transformer.run.checkpoints import CheckpointFolder
from tf_transformer.training.devices import Workers
from tf_transformer.training.progress import (
    MOST_SKIPPED,
    ProgressBar,
    StepWatch,
    TrainingProgress,
    duration,
)
from tf_transformer.training.sessions import Stopper
from tf_transformer.training.trainer import compile_model


@pytest.mark.parametrize(
    ("steps_per_epoch", "replicas", "data_step", "changes"),
    [
        (100, 1, 250, []),
        (100, 2, 250, ["2 instead of 1 devices"]),
        (50, 1, 125, ["batches of another size"]),
        (300, 1, 750, ["batches of another size"]),
        (50, 4, 125, ["4 instead of 1 devices", "batches of another size"]),
    ],
)
def test_other_batches_resume_at_the_same_position_in_the_data(
    steps_per_epoch, replicas, data_step, changes
):
    """2.5 epochs have been seen, before and after."""
    progress = TrainingProgress(data_step=250, steps_per_epoch=100)
    now = TrainingProgress(steps_per_epoch=steps_per_epoch, replicas=replicas)
    assert progress.moved_to(now) == changes
    assert progress.data_step == data_step
    assert (progress.steps_per_epoch, progress.replicas) == (steps_per_epoch, replicas)
    assert progress.moved_to(now) == []
    other = "batches of another size"
    assert progress.moved_to(replace(now, compiled=2)) == ["with XLA", other]
    progress.compiled = 1  # by 1.1.0, which did not fit lengths
    assert progress.moved_to(replace(now, compiled=2)) == [other]


def compiled() -> TokenModel:
    return compiled_model(Config(training=TrainingConfig(warmup_steps=9)))


def fit(model: TokenModel, callbacks, steps: int, task: FakeTask | None = None) -> None:
    model.fit(
        (task or FakeTask(iter(()))).training_data(0),
        steps_per_epoch=steps,
        shuffle=False,
        verbose=0,
        callbacks=callbacks,
    )


class Watched:
    """A model, a `StepWatch` of it, and the steps at which it saved."""

    def __init__(self, **training: object) -> None:
        self.model = compiled()
        self.progress = TrainingProgress()
        self.stopper = Stopper()
        self.saved: list[int] = []
        self.watch = StepWatch(
            self.progress,
            TrainingConfig(**{"steps": 1_000} | training),
            self.stopper,
            Workers().vote,
            lambda: self.saved.append(step_of(self.model.optimizer)),
            CheckpointFolder(Path("none")),
        )

    def fit(self, steps: int, task: FakeTask | None = None) -> int:
        """Trains, and returns the step at which it ended."""
        fit(self.model, [self.watch], steps, task)
        return step_of(self.model.optimizer)


def test_the_bar_shows_steps_loss_and_perplexity(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    model = compiled()
    fit(model, [ProgressBar(done=3, verbose=1)], steps=2)
    bar = capsys.readouterr().err
    # Steps take milliseconds, so the bar may draw only the first.
    for name in ("4/5 |", "left, loss", "perplexity"):
        assert name in bar


@pytest.mark.parametrize("columns", [80, 40])
def test_the_bar_is_no_wider_than_the_terminal(columns, monkeypatch):
    monkeypatch.setenv("COLUMNS", str(columns))
    reader, writer = os.openpty()
    fcntl.ioctl(writer, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with os.fdopen(writer, "w") as terminal:
        monkeypatch.setattr(sys, "stderr", terminal)
        fit(compiled(), [ProgressBar(done=99_990, verbose=1)], steps=3)
        text = os.read(reader, 65_536).decode()
    os.close(reader)
    shown = [line.strip() for line in text.split("\r") if "loss" in line]
    assert shown
    for line in shown:
        assert re.match(r"[\d/]+ \|.+\| .* left, loss", line)
        assert len(line) <= columns


def test_progress_counts_every_step():
    watched = Watched()
    assert not watched.stopper.waiting  # a signal before the first step loses nothing
    watched.fit(3)
    assert (watched.progress.data_step, watched.progress.period_steps) == (3, 3)
    assert watched.progress.period_seconds > 0
    assert watched.stopper.waiting
    assert watched.saved == []


def test_states_are_saved_periodically_until_the_last_step():
    watched = Watched(save_minutes=1e-9, steps=4)
    assert watched.fit(10) == 4
    assert watched.saved == [1, 2, 3]  # the trainer itself saves when `fit` returns


@pytest.mark.parametrize(
    ("steps", "first", "seconds", "messages"),
    [
        # The step of the run differs from the steps of the session once it was resumed.
        (2_060, 11, [19.0, *[1.0] * 59], ["2,000 steps to go, about 33 min"]),
        (100_000, 1, [900.0, *[25.0] * 60], ["99,996 steps to go, about 29 days"]),
        (5, 1, [900.0, *[1.0] * 4], []),
    ],
)
def test_the_time_left_is_estimated_once_without_the_first_step(
    caplog, steps, first, seconds, messages
):
    """The first step also traces, which later steps do not repeat."""
    caplog.set_level("INFO", "tf_transformer")
    watched = Watched(steps=steps)
    for step, taken in enumerate(seconds, start=first):
        watched.watch._estimate(step, taken)
    assert caplog.messages == messages


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (29, "29 s"),
        (31, "1 min"),
        (59.6 * 60, "1 h 0 min"),
        (200 * 60, "3 h 20 min"),
        (1_000 * 24 * 3_600, "1,000 days"),
    ],
)
def test_a_duration_is_given_in_its_largest_units(seconds, text):
    assert duration(seconds) == text


def test_a_nan_loss_is_reported_with_step_and_batch():
    watched = Watched()
    watched.progress.data_step = 100
    with pytest.raises(UserError, match=r"not finite at step 3 \(batch 102\): nan"):
        watched.fit(10, FakeTask(iter(()), damaged_step=2))
    assert watched.saved == []


class InfiniteGradient(keras.layers.Layer):
    """Returns its input; its derivative is infinite, so that no loss scale helps."""

    def call(self, inputs):
        @keras.ops.custom_gradient
        def identity(values):
            return values, lambda upstream: upstream + float("inf")

        return identity(inputs)


def test_updates_that_overflow_at_any_scale_end_training():
    watched = Watched()
    inputs = keras.Input((None, FEATURES))
    watched.model = TokenModel(
        inputs, InfiniteGradient()(keras.layers.Dense(VOCAB_SIZE)(inputs))
    )
    compile_model(watched.model, Config())
    adam = watched.model.optimizer
    watched.model.compile(LossScaleOptimizer(adam), watched.model.loss, metrics=[])
    before = [np.array(weight) for weight in watched.model.get_weights()]
    with pytest.raises(
        UserError, match=f"{MOST_SKIPPED} updates in a row overflowed at step 0"
    ):
        watched.fit(MOST_SKIPPED + 50)
    assert watched.progress.data_step == MOST_SKIPPED - 1
    np.testing.assert_equal(watched.model.get_weights(), before)
