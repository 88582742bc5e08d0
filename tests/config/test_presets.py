"""Presets, of which tests/claims/ shows that they are Table 3's; recipes; errors."""

import inspect
import re
from operator import attrgetter

import pytest

import tf_transformer.config.presets
from tf_transformer.base.errors import UserError
from tf_transformer.config.presets import PRESETS, RECIPES, preset, recipe
from tf_transformer.models.losses import TransformerSchedule


@pytest.mark.parametrize(("name", "averaged"), [("base", 5), ("big", 20)])
def test_as_many_checkpoints_are_averaged_as_in_section_6_1(name, averaged):
    training = preset(name).training
    assert training.average_last == training.keep_last == averaged and not training.patience


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_knows_its_name(name):
    assert preset(name).preset == name


def test_only_multi30k_and_student_have_what_came_after_2017():
    kind = attrgetter("positions", "activation", "norm", "attention_window")
    paper = ("sinusoidal", "relu", "layer", 0)
    later = {name for name, config in PRESETS.items() if kind(config.model) != paper}
    assert {name: preset(name).model.positions for name in later} == {
        "multi30k": "relative", "student": "relative",
    }  # fmt: skip


def test_a_student_spends_its_layers_where_they_cost_least():
    student = preset("student")
    assert (student.model.num_layers, student.model.num_decoder_layers) == (6, 2)
    assert student.decoding.beam_size == 1


def test_presets_are_absolute():
    """No preset is made from another: changing one row cannot change a second one."""
    source = inspect.getsource(tf_transformer.config.presets)
    assert not re.findall(r"\b(TABLE3|PRESETS)\[", source)


@pytest.mark.parametrize(
    ("unknown", "hint"),
    [
        ("bgi", "Did you mean 'big'"),
        ("zzz", "There are: base, .*tiny"),
    ],
)
def test_the_error_for_an_unknown_preset_suggests_the_nearest_or_lists_all(unknown, hint):
    with pytest.raises(UserError, match=f"{unknown!r}. {hint}"):
        preset(unknown)


def test_the_recipe_of_the_paper_is_that_of_sections_3_to_6():
    assert recipe("paper") == {
        "model.norm_first": False, "model.tie_embeddings": True,
        "model.attention_dropout": 0, "model.activation_dropout": 0,
        "data.tokenizer_kind": "bpe",
        "training.batch_tokens": 25_000, "training.warmup_steps": 4_000,
        "training.learning_rate_scale": 1, "training.beta_1": 0.9, "training.beta_2": 0.98,
        "training.epsilon": 1e-9, "training.label_smoothing": 0.1, "training.clip_norm": 0,
        "training.ema_decay": 0, "training.patience": 0,
        "decoding.beam_size": 4, "decoding.alpha": 0.6, "decoding.max_extra_length": 50,
    }  # fmt: skip


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_is_absolute_in_the_settings_it_names(name):
    named = set(recipe(name))
    applied = [config.replace(recipe(name)).flat() for config in PRESETS.values()]
    for setting in named:
        assert len({config[setting] for config in applied}) == 1, setting
    for before, after in zip(PRESETS.values(), applied, strict=True):
        changed = {key for key, value in before.flat().items() if after[key] != value}
        assert changed <= named


@pytest.mark.parametrize("step", [1, 100, 8_000, 50_000])
def test_the_learning_rate_of_t2t_follows_its_formula(step):
    """constant * linear_warmup * rsqrt_decay * rsqrt_hidden_size, with constant 2."""
    expected = 2.0 * min(1.0, step / 8_000) * max(step, 8_000) ** -0.5 * 512**-0.5
    training = preset("base").replace(recipe("t2t")).training
    schedule = TransformerSchedule(512, training.warmup_steps, training.learning_rate_scale)
    assert float(schedule(step - 1)) == pytest.approx(expected, rel=1e-5)


def test_the_error_for_an_unknown_recipe_suggests_the_nearest():
    with pytest.raises(UserError, match="no recipe 'papers'. Did you mean 'paper'"):
        recipe("papers")
