"""Progress of a run, and where it resumes if its batches change."""

import keras
import numpy as np
import pytest
from fake_task import FakeTask, compiled_model

from tf_transformer.config import Config
from tf_transformer.training.progress import Progress


def test_steps_advance_the_position_and_a_new_period_keeps_it():
    progress = Progress()
    for seconds in (0.5, 0.25):
        progress.add_step(seconds)
    progress.means = [np.ones(2)]
    assert (progress.data_step, progress.period_steps) == (2, 2)
    assert progress.period_seconds == 0.75
    progress.start_period()
    assert (progress.data_step, progress.period_steps, progress.means) == (2, 0, [])
    assert progress.period_seconds == 0


def test_progress_is_restored_from_its_arrays():
    means = [np.float32(index) for index in range(12)]  # more than one digit
    progress = Progress(7, 3, 1.25, 100, 2, 64, means)
    restored = Progress.from_arrays(progress.to_arrays())
    assert restored == progress
    assert type(restored.data_step) is int and type(restored.period_seconds) is float


def test_running_means_are_restored_after_a_reset():
    model = compiled_model(Config())
    data = FakeTask(iter(())).training_data(0)
    model.fit(data, steps_per_epoch=3, shuffle=False, verbose=0)
    progress = Progress()
    progress.keep_means(model)
    before = {mean.name: float(mean.result()) for mean in model.running_means}
    assert set(before) == {"loss", "perplexity", "accuracy", "tokens"}
    assert before["tokens"] == sum(4 * length - 2 for length in (3, 4, 5))
    model.reset_metrics()
    assert float(model.running_means[0].result()) == 0
    progress.resume_means(model)
    assert {mean.name: float(mean.result()) for mean in model.running_means} == before


def test_a_new_period_restores_no_means():
    model = compiled_model(Config())
    progress = Progress()
    progress.keep_means(model)
    progress.start_period()
    model.running_means[0].update_state(keras.ops.ones(()))
    progress.resume_means(model)
    assert float(model.running_means[0].result()) == 1


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
    progress = Progress(data_step=250, steps_per_epoch=100)
    now = Progress(steps_per_epoch=steps_per_epoch, replicas=replicas)
    assert progress.moved_to(now) == changes
    assert progress.data_step == data_step
    assert (progress.steps_per_epoch, progress.replicas) == (steps_per_epoch, replicas)
    assert progress.moved_to(now) == []


def test_a_new_size_of_parts_is_a_change():
    now = Progress(max_tokens_per_device=64)
    assert Progress().moved_to(now) == ["parts of another size"]
    assert Progress(max_tokens_per_device=64).moved_to(now) == []
