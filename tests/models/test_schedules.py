"""The learning rate follows the paper's equation 3."""

import keras
import numpy as np
import pytest

from tf_transformer.models.schedules import TransformerSchedule


def paper_rate(step_num: int, d_model: int, warmup_steps: int) -> float:
    """Equation 3 with the paper's names; steps count from 1."""
    return d_model**-0.5 * min(step_num**-0.5, step_num * warmup_steps**-1.5)


@pytest.mark.parametrize(("d_model", "warmup_steps"), [(512, 4_000), (1024, 4_000), (128, 1)])
@pytest.mark.parametrize("update", [1, 2, 100, 3_999, 4_000, 4_001, 100_000, 300_000])
def test_the_rate_of_an_update_follows_equation_3(d_model, warmup_steps, update):
    schedule = TransformerSchedule(d_model, warmup_steps)
    rate = schedule(np.int64(update - 1))  # Keras calls the first update step 0
    assert float(rate) == pytest.approx(paper_rate(update, d_model, warmup_steps), rel=1e-5)


def test_a_start_skips_steps_of_the_schedule():
    plain, later = TransformerSchedule(512, 100), TransformerSchedule(512, 100, start=70)
    for step in (0, 29, 30, 5_000):
        assert float(later(step)) == pytest.approx(float(plain(step + 70)), rel=1e-6)


def test_scale_multiplies_the_rate():
    plain, scaled = TransformerSchedule(512, 100), TransformerSchedule(512, 100, scale=2.5)
    for step in (0, 99, 5_000):
        assert float(scaled(step)) == pytest.approx(2.5 * float(plain(step)), rel=1e-6)


def test_the_first_update_of_an_optimizer_has_the_rate_of_step_1():
    optimizer = keras.optimizers.SGD(TransformerSchedule(64, 10))
    weight = keras.Variable(np.zeros(1, "float32"))
    moved = 0.0
    for update in (1, 2, 3):
        assert float(optimizer.learning_rate) == pytest.approx(paper_rate(update, 64, 10))
        optimizer.apply([np.ones(1, "float32")], [weight])
        moved += paper_rate(update, 64, 10)
        assert float(weight[0]) == pytest.approx(-moved, rel=1e-5)


def test_schedule_survives_serialisation_inside_an_optimizer():
    optimizer = keras.optimizers.Adam(TransformerSchedule(64, 10, scale=2.0))
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert float(again.learning_rate) == float(optimizer.learning_rate)
    config = again.get_config()["learning_rate"]["config"]
    assert config == {"d_model": 64, "warmup_steps": 10, "scale": 2.0, "start": 0}
