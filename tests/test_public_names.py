"""What a study outside the package needs of it: a run, an encoder, pairs that fit, scores."""

import pickle
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import tf_transformer
from tf_transformer import UserError, evaluation


def test_public_modules_are_imported_on_first_use():
    code = """
import sys, tf_transformer
heavy = {"sacrebleu", "keras", "tensorflow"}
print(*heavy & {*sys.modules}, tf_transformer.Run.__name__, *heavy & {*sys.modules})
assert tf_transformer.evaluation.bleu(["a b c d"], ["a b c d"]).value > 99
assert "tensorflow" not in sys.modules and "evaluation" in dir(tf_transformer)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "Run\n"), done.stderr


def test_a_run_tells_what_it_is_and_whether_it_is_finished(trained_run, tmp_path):
    run = tf_transformer.Run.open(shutil.copytree(trained_run.path, tmp_path / "run"))
    lengths = [len(ids) + 1 for ids in tf_transformer.Tokenizer(run.tokenizer).ids(
        trained_run.lines("train.en"))]  # fmt: skip
    assert run.longest_source == max(lengths)
    assert run.history()[-1]["step"] == run.config.training.steps
    assert run.is_finished
    (run.path / "checkpoints" / "average.npz").unlink()
    assert not run.is_finished


def test_a_translation_knows_whether_its_limit_ended_it(translator, texts):
    for found, whole in zip(
        translator.translate(texts, max_length=4), translator.translate(texts), strict=True
    ):
        assert found.is_cut == (found.num_tokens == 4)
        assert not whole.is_cut
        assert pickle.loads(pickle.dumps(found)).is_cut == found.is_cut
    first = translator.translate(texts[0], max_length=4)
    assert first.is_cut and first.with_text("another").is_cut
    assert translator.translate(texts[0], max_length=4, sample=True, seed=1).is_cut


def test_an_export_does_not_know_it(exported, texts):
    assert tf_transformer.load(exported).translate(texts[0]).is_cut is None


def test_the_encoder_is_the_models_own(translator, texts):
    ids, _ = translator.tokenizer.encode(tf.constant(texts[:4]))
    source = ids.to_tensor()
    encoder = translator.encoder
    np.testing.assert_array_equal(encoder(source), translator.model.encode(source))
    assert {*map(id, encoder.weights)} <= {*map(id, translator.model.weights)}
    assert len(encoder.weights) < len(translator.model.weights)


def test_an_export_and_an_ensemble_have_no_encoder(exported, trained_run):
    with pytest.raises(UserError, match="cannot give its model"):
        _ = tf_transformer.load(exported).encoder
    both = tf_transformer.load(trained_run.path, ensemble=[str(trained_run.path)])
    with pytest.raises(ValueError, match="an ensemble"):
        _ = both.encoder


def test_pairs_fit_that_no_limit_cuts(translator, caplog):
    decoding = tf_transformer.DecodingConfig(max_source_length=6, max_extra_length=2)
    small = tf_transformer.Translator(translator.model, translator.tokenizer, decoding)
    texts = [" ".join(["a"] * number) for number in range(1, 12)]
    lengths = [len(ids) + 1 for ids in translator.tokenizer.ids(texts)]
    targets = [len(ids) + 1 for ids in translator.tokenizer.ids(texts, "target")]
    for text, length in zip(texts, targets, strict=True):
        assert small.fits("a", text) == (length <= 8)
    short = ["a"] * len(texts)
    assert small.fits(texts, short) == [length <= 6 for length in lengths]
    assert {True, False} == {*small.fits(texts, short)}
    with caplog.at_level("WARNING"):
        for text, fitting in zip(texts, small.fits(texts, short), strict=True):
            caplog.clear()
            small.score(text, "a")
            assert fitting == (not caplog.records)


def test_scores_of_the_public_module_are_those_of_evaluate(translator, trained_run):
    sources, references = trained_run.lines("dev.en"), trained_run.lines("dev.de")
    found = translator.translate(sources)
    assert repr(evaluation.score_translations(found, references)) == repr(
        translator.evaluate(sources, references)
    )
