"""`train --recipe`."""

from pathlib import Path

import pytest
from command_line import assert_refused, train_options

from tf_transformer.cli.training_options import config_of
from tf_transformer.errors import UserError


def configure(*words):
    return config_of(train_options(words))


def test_a_recipe_overrides_the_preset_and_options_override_the_recipe():
    config = configure("--model", "multi30k", "--recipe", "t2t", "--batch-tokens", "99")
    assert (config.training.beta_2, config.training.warmup_steps) == (0.997, 8_000)
    assert (config.model.d_model, config.training.steps) == (128, 18_000)
    assert config.training.batch_tokens == 99
    config = configure("--recipe", "paper", "--set", "training.warmup_steps=7")
    assert (config.training.warmup_steps, config.training.batch_tokens) == (7, 25_000)
    assert configure("--model", "multi30k").training.warmup_steps == 2_000


def test_a_recipe_overrides_the_file_and_options_override_both(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("{preset: multi30k, training: {beta_2: 0.9, warmup_steps: 5, steps: 7}}")
    words = ("--config", str(file), "--recipe", "t2t", "--set", "training.warmup_steps=6")
    config = configure(*words)
    assert (config.preset, config.model.d_model, config.training.steps) == ("multi30k", 128, 7)
    assert (config.training.beta_2, config.training.warmup_steps) == (0.997, 6)
    file = tmp_path / "config.json"
    file.write_text(configure("--model", "multi30k").to_json())
    assert configure("--config", str(file), "--recipe", "t2t").training.beta_2 == 0.997


def test_a_preset_beside_a_config_json_is_refused_if_it_is_another(tmp_path):
    file = tmp_path / "config.json"
    file.write_text(configure("--model", "multi30k").to_json())
    assert configure("--config", str(file), "--model", "multi30k").model.d_model == 128
    with pytest.raises(UserError, match="a preset would change nothing.* and --model big"):
        configure("--config", str(file), "--model", "big")


def test_a_preset_of_another_task_gets_the_score_and_the_limits_of_the_task():
    config = configure("--model", "small", "--task", "parsing")
    assert config.training.best_by == "f1"
    assert (config.decoding.alpha, config.decoding.max_extra_length) == (0.3, 300)
    config = configure("--model", "parsing-small", "--task", "translation")
    assert config.training.best_by == "bleu"
    assert (config.decoding.alpha, config.decoding.max_extra_length) == (0.6, 50)
    words = ("--model", "small", "--task", "parsing", "--set", "decoding.max_extra_length=9")
    assert configure(*words).decoding.max_extra_length == 9


def test_a_run_of_an_unknown_task_is_refused(workplace, capsys):
    config = Path("begun/config.json")
    config.write_text(config.read_text().replace('"translation"', '"poetry"'))
    assert_refused(capsys, ["translate", "begun"], "There is no task 'poetry'", status=1)


def test_an_unknown_recipe_is_refused(workplace, capsys):
    expected = "no recipe 'papre'. Did you mean 'paper'"
    assert_refused(capsys, ["train", "--recipe", "papre"], expected, status=1)
