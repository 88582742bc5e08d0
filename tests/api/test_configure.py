"""`configure`: what a run takes from the one that it begins with; what does not fit."""

import dataclasses
from pathlib import Path

import pytest

from tf_transformer.api.train import configure
from tf_transformer.base.errors import UserError
from tf_transformer.config.presets import preset
from tf_transformer.run import Run
from tf_transformer.translation.checks import check_training

DROPOUT_RATES = ("dropout", "attention_dropout", "activation_dropout")


@pytest.fixture
def source(tmp_path) -> Path:
    """A run of a pre-LN model with a recipe of its own, and an empty file of weights."""
    config = preset("multi30k").replace(
        {
            "data.train": ["a"], "data.valid": ["b"], "data.source": "en", "data.target": "fr",
            "data.normalization": "nfkc", "data.max_length": 60, "training.steps": 77,
            "data.bleu_tokenizer": "char",
            "training.freeze": ["encoder"], "decoding.checkpoint": "average",
        }
    )  # fmt: skip
    run = Run.create_or_resume(tmp_path / "run", config)
    run.tokenizer.touch()
    run.checkpoints.path.mkdir()
    run.checkpoints.best.touch()
    return run.path


def test_without_a_preset_training_search_and_languages_are_those_of_the_run(source):
    settings = {"training.init_from": str(source)}
    config = configure(settings=settings, overrides=["model.dropout=0"])
    expected = preset("multi30k")
    assert config.model == dataclasses.replace(expected.model, dropout=0)
    assert config.training.steps == 77 and config.training.warmup_steps == 2_000
    assert (config.data.source, config.data.target, config.data.max_length) == ("en", "fr", 60)
    assert config.data.tokenizer == str(source / "tokenizer.model")
    assert config.decoding == expected.decoding  # with checkpoint "best" again
    assert config.training.freeze == () and config.data.train == ()


@pytest.mark.parametrize(
    ("theirs", "given", "expected"),
    [("char", "", "13a"), ("zh", "", "13a"), ("zh", "zh", "zh"), ("none", "", "none"),
     ("intl", "", "intl")],
)  # fmt: skip
def test_what_splits_text_without_blanks_is_chosen(theirs, given, expected, source, caplog):
    """For the new text: training replaces 13a again where that has no blanks."""
    caplog.set_level("INFO", "tf_transformer")
    run = Run.open(source)
    changed = run.config.replace({"data.bleu_tokenizer": theirs})
    (source / "config.json").write_text(changed.to_json())
    words = [f"data.bleu_tokenizer={given}"] * bool(given)
    config = configure(settings={"training.init_from": str(source)}, overrides=words)
    assert config.data.bleu_tokenizer == expected
    said = f"is chosen for the new text: that of {source}, {theirs}," in caplog.text
    assert said == (expected == "13a")


def test_the_tokenizer_of_the_run_replaces_that_of_a_config_json(source, tmp_path):
    """However the run is named; that of the file stays if the file names the run itself."""
    file = tmp_path / "config.json"
    file.write_text(preset("multi30k").to_json())
    by_option = configure(file=file, settings={"training.init_from": str(source)})
    by_set = configure(file=file, overrides=[f"training.init_from={source}"])
    assert by_option == by_set
    assert by_set.data.tokenizer == str(source / "tokenizer.model")
    file.write_text(by_set.replace({"data.tokenizer": "other.model"}).to_json())
    again = configure(file=file, overrides=[f"training.init_from={source}"])
    assert again.data.tokenizer == "other.model"


def test_subwords_are_sampled_as_in_the_run_unless_set(source, caplog):
    caplog.set_level("INFO", "tf_transformer")
    settings = {"training.init_from": str(source)}
    assert configure("tiny", settings=settings).data.subword_sampling == 0
    again = configure("tiny", settings=settings, overrides=["data.subword_sampling=0.2"])
    assert again.data.subword_sampling == 0.2
    assert not caplog.messages


def test_with_a_preset_only_the_model_is_that_of_the_run(source):
    config = configure("tiny", settings={"training.init_from": str(source)})
    model = preset("multi30k").model
    rates = {name: getattr(preset("tiny").model, name) for name in DROPOUT_RATES}
    assert config.model == dataclasses.replace(model, **rates)
    training = preset("tiny").training
    assert config.training == dataclasses.replace(training, init_from=str(source))


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        (["model.d_ff=64"], "`model.d_ff` must be 256, as in .*, which training starts from"),
        (["model.vocab_size=900"], "`model.vocab_size` must be 8000"),
        (["training.init_from=nowhere"], "nowhere is not a run directory"),
        (["training.init_from=", "training.lora_rank=4"], "run: set `training.init_from`"),
    ],
)
def test_settings_that_do_not_fit_the_run_are_refused(source, overrides, expected):
    settings = {"training.init_from": str(source)}
    with pytest.raises(UserError, match=expected):
        check_training(configure(settings=settings, overrides=overrides))
