"""Translators of runs: weights, precision, ensembles, and the card of their exports."""

import json
import shutil

import numpy as np
import pytest

from tf_transformer import load
from tf_transformer.base.errors import UserError
from tf_transformer.config import DecodingConfig
from tf_transformer.data.subwords import target_model_path
from tf_transformer.export.card import card_of
from tf_transformer.loading.translators import load_translator
from tf_transformer.run import Run
from tf_transformer.run.best import save_best


def test_translation_computes_in_float32_whatever_the_training(run):
    mixed = Run(run.path, run.config.replace({"training.precision": "mixed_bfloat16"}))
    translator = load_translator(mixed, "best", decoding=DecodingConfig())
    assert translator.model.dtype_policy.name == "float32"


@pytest.mark.parametrize("which", ["best", "average", "last", "160"])
def test_a_translator_has_the_weights_of_its_checkpoint(run, which):
    translator = load_translator(run, which, decoding=DecodingConfig())
    with np.load(run.checkpoints.find(which)) as arrays:
        for weight in translator.model.trainable_weights:
            np.testing.assert_array_equal(weight.numpy(), arrays[f"model/{weight.path}"])


def test_what_is_loaded_has_the_history_of_its_run(trained_run):
    path = trained_run.path
    lines = (path / "metrics.jsonl").read_text("utf-8").splitlines()
    assert lines and load(path).history == [json.loads(line) for line in lines]


def test_a_run_without_tokenizer_cannot_translate(run):
    run.tokenizer.unlink()
    with pytest.raises(UserError, match="has no tokenizer.model"):
        load_translator(run, "best", decoding=DecodingConfig())


def test_an_ensemble_must_have_one_model_of_the_target_too(run, tmp_path):
    other = Run.open(shutil.copytree(run.path, tmp_path / "other"))
    assert load_translator(run, "best", decoding=DecodingConfig(), ensemble=[other])
    shutil.copy(other.tokenizer, target_model_path(other.tokenizer))
    message = "must have the same tokenizer.*different ones in .*other"
    with pytest.raises(UserError, match=message):
        load_translator(run, "best", decoding=DecodingConfig(), ensemble=[other])


def test_the_card_of_replaced_weights_is_refused(run):
    card = card_of(run, "best")
    assert card()["checkpoint"]["name"] == "best"
    save_best(run.checkpoints.find("last"), run.checkpoints.best, {"bleu": 1000.0}, "dev")
    with pytest.raises(UserError, match="best.npz has been replaced since .* Load it again"):
        card()
