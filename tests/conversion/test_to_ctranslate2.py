"""A run in CTranslate2: another implementation of model and search, with the same results."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.cli.main import main
from tf_transformer.config import EOS_ID, DecodingConfig
from tf_transformer.data.subwords import target_model_path
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding import beam_search
from tf_transformer.loading.translators import load_translator
from tf_transformer.models.transformer import Transformer
from tf_transformer.run import Run
from tf_transformer.translation.translator import Translator

pytest.importorskip("ctranslate2")

import ctranslate2

from tf_transformer.conversion.to_ctranslate2 import to_ctranslate2

SMALL = {"num_layers": 2, "d_model": 32, "d_ff": 64, "num_heads": 4}
# Without a penalty both rank by log-probability; with one, by another formula.
DECODING = DecodingConfig(beam_size=4, alpha=0.0)


@pytest.fixture(scope="module")
def translator(trained_run) -> Translator:
    return load_translator(Run.open(trained_run.path), "best", decoding=DECODING)


def pieces(translator, texts: list[str]) -> list[list[str]]:
    rows = translator.tokenizer.pieces(translator.tokenizer.tokenize(tf.constant(texts)))
    return [[piece.decode() for piece in row] for row in rows.to_list()]


def forced(converted, translator, sources, targets) -> list[float]:
    """The log-probability of each target, EOS included."""
    pairs = pieces(translator, sources), pieces(translator, targets)
    return [sum(result.log_probs) for result in converted.score_batch(*pairs)]


VARIANTS = {
    "three matrices": {"norm_first": True, "tie_embeddings": False},
    "learned positions": {"positions": "learned", "max_length": 128},
    "relative positions": {"positions": "relative"},
    "Marian's": {
        "decoder_layers": 1,
        "attention_bias": True,
        "output_bias": True,
        "activation": "swish",
        "norm_epsilon": 1e-2,
    },
    "swiglu and RMS": {"activation": "swiglu", "norm": "rms", "norm_epsilon": 1e-2},
    "geglu": {"activation": "geglu", "norm_first": True, "norm": "rms"},
}


@pytest.mark.parametrize("variant", VARIANTS.values(), ids=VARIANTS.keys())
def test_forced_scores_are_the_same(translator, trained_run, tmp_path, variant):
    keras.utils.set_random_seed(3)
    tokenizer = type(translator.tokenizer)(translator.tokenizer.path)
    model = Transformer(tokenizer.vocab_size, **SMALL, **variant)
    rng = np.random.default_rng(3)
    for weight in model.trainable_weights:  # initial norms and biases would have no effect
        weight.assign(weight + rng.normal(0, 0.1, weight.shape))
    random = Translator(model, tokenizer, DECODING)
    to_ctranslate2(model, tokenizer, tmp_path / "ct2")
    converted = ctranslate2.Translator(str(tmp_path / "ct2"))
    sources, targets = trained_run.lines("dev.en")[:20], trained_run.lines("dev.de")[:20]
    expected = [one.log_prob for one in random.score(sources, targets)]
    found = forced(converted, random, sources, targets)
    assert found == pytest.approx(expected, abs=1e-3)


def test_the_end_of_the_trained_positions_is_named(translator, tmp_path, caplog):
    trained = {"positions": "learned", "source_positions": 20, "target_positions": 30}
    model = Transformer(translator.tokenizer.vocab_size, **SMALL, **trained)
    to_ctranslate2(model, translator.tokenizer, tmp_path / "ct2")
    assert "trained up to 20 source and 30 target tokens" in caplog.text


def test_the_others_are_more_probable_and_end_outside_the_best_of_a_step(
    translator, trained_run, tmp_path, monkeypatch
):
    """CTranslate2 lets only W of a step's 2W candidates end, `transformers` too."""
    to_ctranslate2(translator.model, translator.tokenizer, tmp_path / "ct2")
    converted = ctranslate2.Translator(str(tmp_path / "ct2"))
    sources = trained_run.lines("train.en")[::3]
    results = converted.translate_batch(
        pieces(translator, sources),
        beam_size=4,
        length_penalty=0,
        max_decoding_length=200,
        return_scores=True,
    )
    scores = np.array([result.scores[0] for result in results])
    found = np.array([one.log_prob for one in translator.translate(sources)])
    assert np.mean(np.abs(scores - found) < 1e-3) >= 0.8  # this model has hardly been trained
    assert (found > scores - 1e-3).all()

    class AsThere(beam_search.Search):
        def merge(self, state, tokens, log_probs):
            is_best = tf.range(tf.shape(log_probs)[1]) < state.log_probs.shape[1]
            return super().merge(state, tokens, tf.where(is_best, log_probs, -np.inf))

    monkeypatch.setattr(beam_search, "Search", AsThere)
    other = Translator(translator.model, translator.tokenizer, DECODING)
    found = [one.log_prob for one in other.translate(sources)]
    np.testing.assert_allclose(scores, found, atol=1e-3)


@pytest.mark.parametrize("ends", [False, True])
def test_scores_of_ctranslate2_differ_as_the_guide_says(
    translator, trained_run, tmp_path, ends
):
    """By a random model, which ends either at once or at the limit."""
    keras.utils.set_random_seed(3)
    model = Transformer(translator.tokenizer.vocab_size, **SMALL, output_bias=True)
    model.projection.output_bias.assign(
        (8.0 if ends else -8.0) * np.eye(model.vocab_size)[EOS_ID]
    )
    to_ctranslate2(model, translator.tokenizer, tmp_path / "ct2")
    converted = ctranslate2.Translator(str(tmp_path / "ct2"))
    sources = pieces(translator, trained_run.lines("dev.en")[:20])
    prefixes = [row[:3] for row in pieces(translator, trained_run.lines("dev.de")[:20])]

    def found(limit=30, **options):
        """Tokens, score and log-probability of each token, EOS included unless cut."""
        settings = {"beam_size": 4, "length_penalty": 0, "min_decoding_length": 0} | options
        answers = converted.translate_batch(
            sources, return_scores=True, max_decoding_length=limit, **settings
        )
        best = [one.hypotheses[0] for one in answers]
        forced = [each.log_probs[:limit] for each in converted.score_batch(sources, best)]
        return zip(map(len, best), (one.scores[0] for one in answers), forced, strict=True)

    for alpha, prefix in ((0, None), (0, prefixes), (1, prefixes)):
        for size, score, each in found(length_penalty=alpha, target_prefix=prefix):
            assert size == (3 if prefix else 0) if ends else size == 30
            counted = sum(each[3:] if prefix else each)  # of the prefix only the length counts
            assert score * len(each) ** alpha == pytest.approx(counted, abs=1e-2)
    blank = converted.score_batch(sources, [[] for _ in sources])
    for (size, score, each), first in zip(found(min_decoding_length=1), blank, strict=True):
        missing = np.log1p(-np.exp(first.log_probs[0]))  # without EOS as the first token
        assert size > 0 and score == pytest.approx(sum(each) - missing, abs=1e-2)
        assert (missing < -0.5) == ends


@pytest.mark.parametrize("size", [{"key_dim": 4}, {"value_dim": 16}])
def test_heads_of_another_size_are_refused(translator, tmp_path, size):
    model = Transformer(translator.tokenizer.vocab_size, **SMALL, **size)
    with pytest.raises(UserError, match="CTranslate2 needs model.key_dim and model.value_dim"):
        to_ctranslate2(model, translator.tokenizer, tmp_path / "ct2")


@pytest.mark.parametrize(
    ("name", "value"), [("positions", "rotary"), ("positions", "none"), ("attention_window", 4)]
)
def test_what_ctranslate2_lacks_is_refused_by_name(translator, tmp_path, name, value):
    model = Transformer(translator.tokenizer.vocab_size, **SMALL, **{name: value})
    with pytest.raises(UserError, match=f"CTranslate2 lacks model.{name}={value}"):
        to_ctranslate2(model, translator.tokenizer, tmp_path / "ct2")


def test_both_tokenizers_of_separate_vocabularies_are_copied(translator, tmp_path):
    path = tmp_path / "tokenizer.model"
    translator.tokenizer.copy(path)
    translator.tokenizer.copy(target_model_path(path))
    model = Transformer(translator.tokenizer.vocab_size, **SMALL, tie_embeddings=False)
    to_ctranslate2(model, Tokenizer(path), tmp_path / "ct2")
    for file in (path, target_model_path(path)):
        assert (tmp_path / "ct2" / file.name).read_bytes() == file.read_bytes()


def test_convert_writes_a_folder_and_does_not_overwrite_it(trained_run, tmp_path, capsys):
    output = tmp_path / "int8"
    command = ["convert", str(trained_run.path), "--to", "ctranslate2", str(output)]
    assert main([*command, "--quantization", "int8"]) == 0
    assert re.fullmatch(rf"converted .* to {output} \(\d\.\d MB\)\n", capsys.readouterr().out)
    assert ctranslate2.Translator(str(output)).compute_type.startswith("int8")
    assert (output / "tokenizer.model").exists()
    assert main(command) == 1
    assert "int8 exists already" in capsys.readouterr().err
