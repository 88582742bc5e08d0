"""A model in LiteRT finds what the model finds: always in float32, mostly in int8."""

import numpy as np
import pytest
from trained import DECODING, assert_same, small_model

from tf_transformer import load
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.lite import LiteEngine, LiteModel, kept_lite_file, lite_file
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.tasks import models
from tf_transformer.tasks.translation.translator import Translator


@pytest.fixture(scope="module")
def in_float32(translator) -> LiteModel:
    return LiteModel(lite_file(translator.model, "float32"), threads=1)


def in_litert(translator: Translator, lite: LiteModel, **options) -> Translator:
    engine = LiteEngine(translator.model, translator.tokenizer, lite, **options)
    return Translator(engine=engine, decoding=DECODING)


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        (4, {}),
        (1, {"beam_size": 1}),
        (3, {"beam_size": 7, "alpha": 1.5, "batch_tokens": 200}),
        (4, {"min_length": 12, "no_repeat_ngram": 2, "max_length": 30}),
    ],
)
def test_float32_finds_what_the_model_finds(translator, in_float32, texts, number, settings):
    lite = in_litert(translator, in_float32).translate(texts, n_best=number, **settings)
    assert_same(lite, translator.translate(texts, n_best=number, **settings))


def test_a_model_with_frozen_layers_and_adapters_is_converted():
    model = small_model(20)
    plain = lite_file(model, "float32")
    model.enable_lora(2)
    assert len(lite_file(model, "float32")) == pytest.approx(len(plain), rel=0.1)


def test_simultaneous_searches_use_different_interpreters(translator, in_float32, texts):
    with in_float32.interpreter() as one, in_float32.interpreter() as other:
        assert one is not other
    lite = in_litert(translator, in_float32, streams=3)
    assert_same(lite.translate(texts, n_best=4), translator.translate(texts, n_best=4))


def test_a_prefix_is_continued_as_the_model_continues_it(translator, in_float32, texts):
    prefixes = [["Der", "", "Am Montag"][i % 3] for i in range(len(texts))]
    lite = in_litert(translator, in_float32)
    found = lite.translate(texts, prefix=prefixes, n_best=1)
    assert_same(found, translator.translate(texts, prefix=prefixes, n_best=1))


def test_int8_finds_nine_tenths_of_what_float32_finds(
    translator, trained_run, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    texts = trained_run.lines("train.en")[:150]
    loaded = load(trained_run.path, precision="int8", litert=True)
    found, expected = loaded.translate(texts), translator.translate(texts)
    assert np.mean(np.array(found) == np.array(expected)) >= 0.9

    (kept,) = (tmp_path / "tf_transformer").glob("*-int8-*.tflite")
    weights = Run.open(trained_run.path).weights(None)
    assert (
        kept.stat().st_size < 0.5 * weights.stat().st_size
    )  # so the weights are not in float32
    kept.write_bytes(b"changed")
    assert (
        kept_lite_file(translator.model, "int8", weights) == b"changed"
    )  # not converted again

    with pytest.raises(UserError, match="LiteRT cannot sample: leave out `litert`"):
        loaded.translate(texts, sample=True)
    with pytest.raises(UserError, match="`precision='int8'` needs .* or `format='litert'`"):
        loaded.export(tmp_path / "exported")
    with pytest.raises(UserError, match="excludes `ensemble`: LiteRT is for one model"):
        load(trained_run.path, litert=True, ensemble=[str(trained_run.path)])
    with pytest.raises(UserError, match="excludes `precision='bfloat16'`"):
        load(trained_run.path, precision="bfloat16", litert=True)
    with pytest.raises(UserError, match="`precision='int8'` needs `litert=True`"):
        load(trained_run.path, precision="int8")


def test_litert_in_float32_is_an_option_of_loading_and_exports_as_usual(
    translator, trained_run, texts, in_float32, tmp_path, monkeypatch
):
    monkeypatch.setattr(models, "kept_lite_file", lambda *_: in_float32.content)
    loaded = load(trained_run.path, litert=True)
    expected = translator.translate(texts)
    monkeypatch.setattr(GraphEngine, "search_ids", None)  # only TensorFlow uses it
    found = loaded.translate(texts, beam_size=4)
    assert found == expected
    (tmp_path / "model.keras").touch()
    monkeypatch.undo()
    exported = loaded.export(tmp_path / "exported")  # tested against the model in TensorFlow
    assert load(exported).translate(texts) == found
    with pytest.raises(UserError, match="`litert` is not for a .keras file"):
        load(tmp_path / "model.keras", litert=True)
