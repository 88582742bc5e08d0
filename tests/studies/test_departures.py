"""Every departure of a run from the paper is reported."""

import pytest

from tf_transformer.config.presets import RECIPES, TABLE3, preset, recipe
from tf_transformer.studies.departures import additions, departures, describe_departures


@pytest.mark.parametrize("name", RECIPES)
def test_of_the_recipes_only_the_papers_has_no_departures(name):
    assert (departures(preset("base").replace(recipe(name))) == []) == (name == "paper")


@pytest.mark.parametrize("row", TABLE3)
def test_no_row_of_table_3_departs_from_the_paper(row):
    assert departures(preset(row)) == []


def test_big_is_compared_with_the_steps_and_dropout_of_big():
    config = preset("big").replace({"training.steps": 100_000, "model.dropout": 0.1})
    assert {each.setting: each.paper for each in departures(config)} == {
        "training.steps": 300_000,
        "model.dropout": 0.3,
    }


def test_unset_head_sizes_count_as_their_effective_values():
    assert departures(preset("base").replace({"model.key_dim": 64})) == []
    (only,) = departures(preset("base").replace({"model.key_dim": 32}))
    assert (only.setting, only.run, only.paper) == ("model.key_dim", 32, 64)


def test_a_decoder_of_another_depth_is_a_departure():
    config = preset("base").replace({"model.decoder_layers": 1})
    (only,) = departures(config)
    assert (only.setting, only.run, only.paper) == ("model.decoder_layers", 1, 6)
    assert "model.decoder_layers" not in additions(config)


def test_all_departures_of_the_multi30k_preset_are_listed():
    every = departures(preset("multi30k"))
    assert {each.setting: (each.run, each.paper) for each in every} == {
        "model.norm_first": (True, False),
        "training.batch_tokens": (4_096, 25_000),
        "training.warmup_steps": (2_000, 4_000),
        "training.learning_rate_scale": (2.53, 1.0),
        "training.ema_decay": (0.999, 0.0),
        "model.attention_dropout": (0.1, 0.0),
        "model.activation_dropout": (0.1, 0.0),
        "decoding.max_extra_length": (15, 50),
        "decoding.beam_size": (5, 4),
        "model.vocab_size": (8_000, 37_000),
        "model.num_layers": (4, 6),
        "model.d_model": (128, 512),
        "model.d_ff": (256, 2048),
        "model.num_heads": (4, 8),
        "model.key_dim": (32, 64),
        "model.value_dim": (32, 64),
        "model.dropout": (0.3, 0.1),
        "training.steps": (18_000, 100_000),
        "training.evaluate_every": (1_000, 1_500),
        "training.average_last": (10, 5),
    }


def test_settings_that_the_paper_lacks_are_listed_separately():
    config = preset("base").replace(
        {
            "training.precision": "mixed_bfloat16",
            "training.max_tokens_per_device": 4096,
            "data.train": ["x"],
            "training.seed": 7,
        }
    )
    assert departures(config) == []
    assert additions(config) == {
        "training.precision": "mixed_bfloat16",
        "training.max_tokens_per_device": 4096,
        "data.max_length": 256,
        "data.max_ratio": 4.0,
        "data.normalization": None,
        "data.character_coverage": 1.0,
    }
    told = {"data.normalization": "nfkc", "data.character_coverage": 0.99}
    assert additions(config, told) == additions(config) | told


def test_every_departure_is_on_a_line():
    config = preset("base").replace({"model.norm_first": True, "training.clip_norm": 1})
    lines = describe_departures(config)
    assert lines[0] == "2 departures from the paper's base recipe"
    assert lines[1].split() == ["model.norm_first", "True", "paper", "False", "(3.1)"]
    assert lines[2].split()[:4] == ["training.clip_norm", "1.0", "paper", "0.0"]
    assert lines[3] == "settings the paper does not have"
