"""Recipes: absolute in the settings they name."""

import pytest

from tf_transformer.config.presets import PRESETS, preset
from tf_transformer.config.recipes import RECIPES, recipe
from tf_transformer.errors import UserError
from tf_transformer.models.schedules import TransformerSchedule


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_absolute_in_the_settings_it_names(name):
    named = set(recipe(name).settings)
    applied = [config.replace(recipe(name).values).flat() for config in PRESETS.values()]
    for setting in named:
        assert len({config[setting] for config in applied}) == 1, setting
    for before, after in zip(PRESETS.values(), applied, strict=True):
        changed = {key for key, value in before.flat().items() if after[key] != value}
        assert changed <= named


@pytest.mark.parametrize("step", [1, 100, 8_000, 50_000])
def test_the_learning_rate_of_t2t_follows_its_formula(step):
    """constant * linear_warmup * rsqrt_decay * rsqrt_hidden_size, with constant 2."""
    expected = 2.0 * min(1.0, step / 8_000) * max(step, 8_000) ** -0.5 * 512**-0.5
    training = preset("base").replace(recipe("t2t").values).training
    schedule = TransformerSchedule(512, training.warmup_steps, training.learning_rate_scale)
    assert float(schedule(step - 1)) == pytest.approx(expected, rel=1e-5)


def test_the_error_for_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(UserError, match="no recipe 'papers'. Did you mean 'paper'"):
        recipe("papers")
