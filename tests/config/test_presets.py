"""The presets are the paper's: Table 3 and section 5, copied here from the paper itself."""

import dataclasses
import inspect
import re

import pytest

import tf_transformer.config.presets
from tf_transformer.config.presets import PRESETS, RECIPES, TABLE3, TABLE4, preset, recipe
from tf_transformer.errors import UserError
from tf_transformer.models.losses import TransformerSchedule

# Table 3, first line, with the sentence above it: d_k = d_v = d_model / h unless changed.
PAPER_BASE = {
    "N": 6, "d_model": 512, "d_ff": 2048, "h": 8, "d_k": 64, "d_v": 64, "P_drop": 0.1,
    "eps_ls": 0.1, "steps": 100_000, "positions": "sinusoidal",
}  # fmt: skip
# What each row of Table 3 prints; its blanks are the base model's.
PAPER_ROWS = {
    "base": {},
    "table3-A-h1": {"h": 1, "d_k": 512, "d_v": 512},
    "table3-A-h4": {"h": 4, "d_k": 128, "d_v": 128},
    "table3-A-h16": {"h": 16, "d_k": 32, "d_v": 32},
    "table3-A-h32": {"h": 32, "d_k": 16, "d_v": 16},
    "table3-B-dk16": {"d_k": 16},
    "table3-B-dk32": {"d_k": 32},
    "table3-C-N2": {"N": 2},
    "table3-C-N4": {"N": 4},
    "table3-C-N8": {"N": 8},
    "table3-C-d256": {"d_model": 256, "d_k": 32, "d_v": 32},
    "table3-C-d1024": {"d_model": 1024, "d_k": 128, "d_v": 128},
    "table3-C-ff1024": {"d_ff": 1024},
    "table3-C-ff4096": {"d_ff": 4096},
    "table3-D-drop0.0": {"P_drop": 0.0},
    "table3-D-drop0.2": {"P_drop": 0.2},
    "table3-D-ls0.0": {"eps_ls": 0.0},
    "table3-D-ls0.2": {"eps_ls": 0.2},
    "table3-E-learned": {"positions": "learned"},
    "big": {"d_model": 1024, "d_ff": 4096, "h": 16, "P_drop": 0.3, "steps": 300_000},
}
# Vocabulary sizes of section 6.3; the rest is as in the base model.
PAPER_PARSERS = {"parsing-wsj": 16_000, "parsing-semi": 32_000}


def table_row(name: str) -> dict[str, object]:
    """Returns a preset as a row with the paper's columns."""
    model, training = preset(name).model, preset(name).training
    return {
        "N": model.num_layers,
        "d_model": model.d_model,
        "d_ff": model.d_ff,
        "h": model.num_heads,
        "d_k": model.key_dim or model.d_model // model.num_heads,
        "d_v": model.value_dim or model.d_model // model.num_heads,
        "P_drop": model.dropout,
        "eps_ls": training.label_smoothing,
        "steps": training.steps,
        "positions": model.positions,
    }


@pytest.mark.parametrize("name", PAPER_ROWS)
def test_a_preset_matches_its_row_of_table_3(name):
    assert table_row(name) == PAPER_BASE | PAPER_ROWS[name]


def test_every_row_of_tables_3_and_4_is_a_preset():
    assert set(TABLE3) == set(PAPER_ROWS) <= set(PRESETS)
    assert set(TABLE4) == set(PAPER_PARSERS) <= set(PRESETS)


@pytest.mark.parametrize("name", TABLE3)
def test_training_follows_section_5_and_decoding_section_6_1(name):
    config = preset(name)
    assert config.model.vocab_size == 37_000
    assert config.model.tie_embeddings and not config.model.norm_first
    training = config.training
    assert (training.beta_1, training.beta_2, training.epsilon) == (0.9, 0.98, 1e-9)
    assert (training.warmup_steps, training.learning_rate_scale) == (4_000, 1.0)
    assert training.batch_tokens == 25_000
    assert (training.clip_norm, training.patience) == (0, 0)
    decoding = config.decoding
    assert (decoding.beam_size, decoding.alpha, decoding.max_extra_length) == (4, 0.6, 50)


@pytest.mark.parametrize("name", TABLE4)
def test_a_parser_follows_section_6_3(name):
    assert table_row(name) == PAPER_BASE | {"N": 4, "d_model": 1024, "d_k": 128, "d_v": 128}
    config = preset(name)
    assert (config.model.vocab_size, config.task) == (PAPER_PARSERS[name], "parsing")
    decoding = config.decoding
    assert (decoding.beam_size, decoding.alpha, decoding.max_extra_length) == (21, 0.3, 300)
    base = preset("base")
    changed = {"vocab_size": 37_000, "num_layers": 6, "d_model": 512}
    assert dataclasses.replace(config.model, **changed) == base.model
    assert dataclasses.replace(config.training, best_by="bleu") == base.training


@pytest.mark.parametrize(("name", "averaged"), [("base", 5), ("big", 20)])
def test_as_many_checkpoints_are_averaged_as_in_section_6_1(name, averaged):
    assert preset(name).training.average_last == averaged
    assert preset(name).training.keep_last == averaged


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_knows_its_name(name):
    assert preset(name).preset == name


def test_presets_are_absolute():
    """No preset is made from another: changing one row cannot change a second one."""
    source = inspect.getsource(tf_transformer.config.presets)
    assert not re.findall(r"\b(TABLE3|TABLE4|PRESETS)\[", source)


@pytest.mark.parametrize(
    ("unknown", "hint"),
    [
        ("bgi", "Did you mean 'big'"),
        ("table3-C-N3", "Did you mean 'table3-C-N"),
        ("zzz", "There are: base, .*tiny"),
    ],
)
def test_the_error_for_an_unknown_preset_suggests_the_nearest_or_lists_all(unknown, hint):
    with pytest.raises(UserError, match=f"{unknown!r}. {hint}"):
        preset(unknown)


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
