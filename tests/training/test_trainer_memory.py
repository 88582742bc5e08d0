"""Training that runs out of memory continues in smaller parts, as if configured so."""

import itertools
from contextlib import nullcontext
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from fake_task import FEATURES, FakeTask
from test_trainer import assert_same_training, train_run

from tf_transformer.errors import UserError
from tf_transformer.models.token_model import TokenModel
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import read_progress
from tf_transformer.training.interruption import Budget, Interrupted, Stopper

PLENTY = 1_000


class Cramped(keras.layers.Layer):
    """Returns its input; in training, memory suffices for `most` positions at once."""

    def __init__(self, most: int) -> None:
        super().__init__(name="cramped")
        self.most = most

    def call(self, inputs, training=None):
        if not training:
            return inputs
        outputs = tf.numpy_function(self._allocate, [inputs], inputs.dtype)
        return tf.ensure_shape(outputs, inputs.shape)

    def _allocate(self, inputs: np.ndarray) -> np.ndarray:
        if inputs.shape[0] * inputs.shape[1] > self.most:
            raise MemoryError  # TensorFlow turns it into the error of a GPU's allocator
        return inputs


class CrampedTask(FakeTask):
    """Batches of 12, 16 and 20 positions in turn, and memory for `most` positions.

    Parts may have 16 or 8 positions, as rows have up to 5.
    """

    def __init__(self, most: int, *shapes: tuple[int, int]) -> None:
        super().__init__(itertools.count(10.0))
        self.most = most
        self.shapes = shapes or self.shapes

    def build_model(self) -> TokenModel:
        inputs = keras.Input((None, FEATURES), name="features")
        logits = super().build_model()(Cramped(self.most)(inputs))
        return TokenModel(inputs, logits, name="cramped")


def train(path: Path, task: FakeTask, stop_after: int | None = None, **changes) -> Run:
    """Trains in a new session, perhaps until it stops after some steps."""
    stopper = Stopper(Budget(steps=stop_after)) if stop_after else None
    with pytest.raises(Interrupted) if stop_after else nullcontext():
        train_run(path, task, stopper, **changes)
    return Run.open(path)


def parts_of(run: Run) -> int:
    return int(read_progress(run.checkpoints.state_path(6))["max_tokens_per_device"])


def test_without_a_state_training_starts_over_in_smaller_parts(tmp_path, caplog):
    caplog.set_level("INFO", "tf_transformer")
    run = train(tmp_path / "one", CrampedTask(16), evaluate_every=6)  # the third step fails
    assert [m for m in caplog.messages if m.startswith("out of memory: back to")]
    assert any("in parts of 8," in message for message in caplog.messages)
    expected = train(
        tmp_path / "two", CrampedTask(PLENTY), evaluate_every=6, max_tokens_per_device=8
    )
    assert_same_training(run, expected)


def test_training_resumes_in_smaller_parts_and_keeps_them(tmp_path, caplog):
    run = train(tmp_path / "one", CrampedTask(16))  # saved after the second step
    assert "resuming from step 2" not in caplog.text
    train(tmp_path / "two", CrampedTask(PLENTY), stop_after=2)
    expected = train(tmp_path / "two", CrampedTask(PLENTY), max_tokens_per_device=8)
    assert_same_training(run, expected)
    assert [record["step"] for record in run.history()] == [2, 4, 6]
    train(tmp_path / "three", CrampedTask(16), stop_after=4)
    caplog.clear()
    resumed = train(tmp_path / "three", CrampedTask(16))
    assert (parts_of(resumed), caplog.messages) == (8, [])  # no change, no failure
    assert_same_training(resumed, run)


def test_parts_are_kept_unless_memory_or_the_user_demands_others(tmp_path, monkeypatch, caplog):
    train(tmp_path, CrampedTask(PLENTY), stop_after=2, max_tokens_per_device=16)
    run = train(tmp_path, CrampedTask(PLENTY), steps=6)
    assert parts_of(run) == 16 and caplog.messages == []
    monkeypatch.setattr("tf_transformer.training.parts.device_memory", lambda: ("GPU", 1))
    train(tmp_path, CrampedTask(PLENTY), steps=8)
    assert "parts of another size: from here on, not bit for bit" in caplog.text
    caplog.clear()
    train(tmp_path, CrampedTask(PLENTY), steps=10, max_tokens_per_device=0)
    assert "parts of another size: from here on, not bit for bit" in caplog.text


@pytest.mark.parametrize(
    ("task", "changes", "message"),
    [
        # Half of the share that is estimated, 64, is still more than the batches have.
        (CrampedTask(16, (32, 4)), {}, "^Out of memory in parts of 64.*device 32: "),
        (CrampedTask(4), {}, "^Out of memory, and no part is smaller than one sentence"),
        (CrampedTask(16), {"max_tokens_per_device": 0}, "Leave out --max-tokens-per-device 0"),
    ],
)
def test_if_half_a_part_does_not_help_it_is_a_user_error(tmp_path, task, changes, message):
    with pytest.raises(UserError, match=message):
        train(tmp_path, task, **changes)
