"""`train --recipe`, and departures from the paper by `recipe diff`."""

from pathlib import Path

import pytest
from command_line import assert_refused, train_options

from tf_transformer.cli.main import main
from tf_transformer.cli.training_options import config_of
from tf_transformer.data.tokenizer_training import train_tokenizer
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


def test_every_departure_is_on_a_line(trained_run, capsys):
    assert main(["recipe", "diff", str(trained_run.path), "paper"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    for expected in (
        ["model.d_model", "64", "paper", "512", "(3.1)"],
        ["model.dropout", "0.05", "paper", "0.1", "(5.4)"],
        ["training.batch_tokens", "1,024", "paper", "25,000", "(5.1)"],
        ["data.max_ratio", "4.0"],
        ["data.normalization", "identity"],
        ["data.character_coverage", "1.0"],
    ):
        assert expected in lines
    assert not [line for line in lines if line[0] == "training.beta_2"]


def test_the_normalization_shown_is_that_of_the_tokenizer(workplace, capsys):
    """Even if it is not the configured one; None if there is no tokenizer yet."""
    lines, options = ["a b c"] * 9, {"kind": "bpe", "normalization": "nmt_nfkc"}
    train_tokenizer(lines, Path("run/tokenizer.model"), vocab_size=266, **options)
    for run, expected in (("run", "nmt_nfkc"), ("begun", "None")):
        assert main(["recipe", "diff", run]) == 0
        rows = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["data.normalization", expected] in rows


@pytest.mark.parametrize(
    ("recipe", "expected"), [([], "the paper's base recipe"), (["t2t"], "training.beta_2")]
)
def test_a_run_is_compared_with_the_paper_or_another_recipe(
    trained_run, capsys, recipe, expected
):
    assert main(["recipe", "diff", str(trained_run.path), *recipe]) == 0
    assert expected in capsys.readouterr().out


def test_a_run_of_an_unknown_task_is_refused(workplace, capsys):
    config = Path("begun/config.json")
    config.write_text(config.read_text().replace('"translation"', '"poetry"'))
    assert_refused(capsys, ["recipe", "diff", "begun"], "There is no task 'poetry'", status=1)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["train", "--recipe", "papre"], "no recipe 'papre'. Did you mean 'paper'"),
        (["recipe", "diff", "nowhere"], "not a run directory"),
        (["recipe", "diff", "run", "t3t"], "no recipe 't3t'. Did you mean 't2t'"),
    ],
)
def test_mistakes_give_one_line(workplace, words, expected, capsys):
    assert_refused(capsys, words, expected, status=1)
