"""Parts of a batch: their default size, and training that goes on when memory runs out."""

import itertools
import re
from contextlib import nullcontext
from pathlib import Path

import keras
import pytest
import tensorflow as tf
from fake_task import FEATURES, FakeTask
from replicas import strategy_of
from test_trainer import assert_same_training, open_run, train_run

from tf_transformer.base.errors import UserError
from tf_transformer.models.sums import in_parts
from tf_transformer.models.token_model import TokenModel
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import read_progress
from tf_transformer.training.devices import Workers
from tf_transformer.training.sessions import Budget, Interrupted, Stopper
from tf_transformer.training.trainer import CPU_POSITIONS, Trainer, part_shapes

PLENTY = 1_000
TOO_MUCH = 2**45  # numbers: more than a process can address


class Cramped(keras.layers.Layer):
    """Returns its input; in training, TensorFlow cannot allocate more than `most` positions."""

    def __init__(self, most: int) -> None:
        super().__init__(name="cramped")
        self.most = most

    def call(self, inputs, training=None):
        if not training:
            return inputs
        positions = tf.size(inputs, tf.int64) // FEATURES
        numbers = tf.where(positions > self.most, tf.constant(TOO_MUCH, tf.int64), 1)
        return inputs + tf.reduce_max(tf.fill([numbers], 0.0))


class CrampedTask(FakeTask):
    """Batches of 12, 16 and 20 positions in turn, and memory for `most` positions."""

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
    path = run.checkpoints.latest_state()
    return int(read_progress(path)["max_tokens_per_device"])


# --- The size of parts -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "shapes", "asked", "recorded", "cut"),
    [
        (0, [(100, 41), (9, 100)], None, CPU_POSITIONS, 4_096),  # a share of 4,100 positions
        (0, [(64, 64), (9, 100)], None, CPU_POSITIONS, None),  # which fits whole
        (1, [(100, 41)], None, 0, None),
        (1, [(4, 4)], 8, 8, 8),
        (0, [(4, 4)], 0, 0, None),
    ],
)
def test_a_cpu_has_parts_of_4096_and_a_gpu_none_unless_told(
    tmp_path, monkeypatch, gpus, shapes, asked, recorded, cut
):
    monkeypatch.setattr(tf.config, "get_visible_devices", lambda kind: [kind] * gpus)
    run = open_run(tmp_path, max_tokens_per_device=asked)
    trainer = Trainer(run, CrampedTask(PLENTY, *shapes))
    trainer._restore()
    assert trainer.progress.max_tokens_per_device == recorded
    assert trainer.model.max_tokens_per_device == cut


def test_a_run_keeps_its_parts_unless_told_otherwise(tmp_path, caplog):
    train(tmp_path, CrampedTask(PLENTY), stop_after=1, max_tokens_per_device=16)
    for asked, kept in ((None, 16), (0, 0)):
        trainer = Trainer(open_run(tmp_path, max_tokens_per_device=asked), CrampedTask(PLENTY))
        assert caplog.messages == []
        trainer._restore()
        assert trainer.progress.max_tokens_per_device == kept
    assert "parts of another size: from here on, not bit for bit" in caplog.text


# --- A failed allocation -----------------------------------------------------------------


def test_without_a_state_training_starts_over_in_halved_parts(tmp_path, caplog):
    caplog.set_level("INFO", "tf_transformer")
    run = train(tmp_path / "one", CrampedTask(16), evaluate_every=6)  # the third step fails
    # After those on the model and its files, and between those on its memory.
    _, _, _, line, _, evaluation = caplog.messages[:6]
    assert line == "out of memory: back to the last state, on in parts of 10 positions"
    assert evaluation.startswith("step")
    expected = train(
        tmp_path / "two", CrampedTask(PLENTY), evaluate_every=6, max_tokens_per_device=10
    )
    assert_same_training(run, expected)


def test_training_goes_on_from_a_state_in_halved_parts_and_keeps_them(tmp_path):
    run = train(tmp_path / "one", CrampedTask(16))  # saved after the second step
    train(tmp_path / "two", CrampedTask(PLENTY), steps=2)
    expected = train(tmp_path / "two", CrampedTask(PLENTY), max_tokens_per_device=10)
    assert_same_training(run, expected)
    assert [record["step"] for record in run.history()] == [2, 4, 6]
    assert parts_of(run) == 10


@pytest.mark.parametrize(("asked", "sizes"), [(0, [10, 5]), (12, [6])])
def test_parts_are_halved_until_they_are_smaller_than_a_sentence(
    tmp_path, caplog, asked, sizes
):
    with pytest.raises(UserError, match="^Out of memory, and no part is smaller than one"):
        train(tmp_path, CrampedTask(2), max_tokens_per_device=asked)
    assert [int(size) for size in re.findall(r"parts of (\d+) positions", caplog.text)] == sizes


def test_several_workers_are_told_which_size_to_give(tmp_path):
    """One worker cannot go back alone: the others wait for it in the middle of a step."""
    workers = Workers(strategy_of(2), number=2)
    trainer = Trainer(open_run(tmp_path), CrampedTask(5, (4, 5)), workers)
    with pytest.raises(UserError, match="all workers.* `training.max_tokens_per_device=5"):
        trainer.train()


def test_parts_have_the_shapes_that_a_step_computes():
    shapes = [(10, 8), (10, 6), (1, 90)]
    assert part_shapes(shapes, 1, None) == set(shapes)
    for replicas, most in ((1, 32), (2, 30), (4, 1_000)):
        for rows, length in shapes:
            share = tf.zeros([-(-rows // replicas), length])
            _, part = in_parts(share, max(most // length, 1))
            assert {tuple(part.shape[1:])} == part_shapes([(rows, length)], replicas, most)
