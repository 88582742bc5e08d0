"""The search in NumPy finds what the graph finds; a model in LiteRT what the model finds."""

import sys
from difflib import SequenceMatcher
from types import MappingProxyType

import numpy as np
import pytest
import tensorflow as tf
from table_model import (
    EARLY_OR_LATE,
    ENDLESS,
    Rules,
    TableStep,
    applied,
    assert_found,
    list_beam,
    random_tables,
    search,
    table_of,
)
from trained import DECODING, assert_same, small_model

from tf_transformer import load
from tf_transformer.base.errors import UserError
from tf_transformer.config import EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.decoding.engine import GraphEngine
from tf_transformer.decoding.hypotheses import Hypotheses
from tf_transformer.decoding.interface import Translation
from tf_transformer.decoding.rules import NextToken
from tf_transformer.litert.engine import LiteEngine
from tf_transformer.litert.file import cached_lite_file, lite_file
from tf_transformer.litert.interpreter import InterpreterPool, ModelInterpreter, new_interpreter
from tf_transformer.litert.search import _best_of_many, _best_tokens, numpy_beam_search
from tf_transformer.run import Run
from tf_transformer.translation.translator import Translator


def found_by(
    step: TableStep, limits: list[int], number=1, rules: dict = MappingProxyType({}), **settings
) -> Hypotheses:
    decoding = DecodingConfig(**({"beam_size": 2} | settings))
    limits = np.array(limits, np.int32)
    return numpy_beam_search(step, decoding, number, limits, applied(**rules))


SLOTS = np.array([[0, 0], [1, 0], [0, 2], [1, 1], [2, 3]], np.int32)
PREFIXES = np.array([[4, 0, 0], [0, 0, 0], [5, 4, 4], [4, 5, 0]], np.int32)
MINIMA = np.array([5, 1, 3, 9, 2], np.int32)
BANNED = np.random.default_rng(7).integers(0, 9, (8, 10))  # a token at each step
OF_USERS = {
    "second": np.array([0, 6, 5, 0, 4], np.int32),
    "steps": np.arange(9) != BANNED[..., np.newaxis],
    "most": np.array([0, 1, 99, 2], np.int32),
}


@pytest.mark.parametrize(
    ("vocabulary_size", "beam_size", "number", "alpha", "rules"),
    [
        (8, 1, 1, 0.0, {}),
        (4, 2, 2, 0.6, {}),
        (700, 4, 3, 0.6, {}),  # large enough for only the best to be sorted
        (8, 4, 2, 1.0, {"min_lengths": MINIMA[:1]}),
        (700, 4, 1, 0.6, {"no_repeat_ngram": 1}),
        (8, 3, 2, 0.6, {"prefix": PREFIXES, "min_lengths": MINIMA, "no_repeat_ngram": 3}),
        (9, 3, 2, 0.6, {"slots": SLOTS}),
        (700, 1, 1, 0.6, {"slots": SLOTS, "no_repeat_ngram": 2}),
        (9, 4, 4, 0.6, {"slots": SLOTS, "prefix": PREFIXES, "no_repeat_ngram": 1}),
        (9, 1, 1, 0.6, {"most": OF_USERS["most"]}),
        (9, 4, 2, 0.6, OF_USERS),
        (9, 3, 3, 0.6, OF_USERS | {"slots": SLOTS, "prefix": PREFIXES, "no_repeat_ngram": 2}),
        (9, 2, 2, 0.6, {"most": OF_USERS["most"], "no_repeat_ngram": 2, "min_lengths": MINIMA}),
    ],
)
def test_it_finds_what_the_lists_and_the_graph_find(
    vocabulary_size, beam_size, number, alpha, rules
):
    count = 12 if vocabulary_size > 100 else 64
    tables = random_tables(count, vocabulary_size, seed=beam_size)
    limits = [1 + row % 9 for row in range(count)]
    sizes = {"beam_size": beam_size, "alpha": alpha}
    for name in rules.keys() - {"no_repeat_ngram"}:
        rules = rules | {name: np.resize(rules[name], [count, *rules[name].shape[1:]])}
    step = TableStep(tables)
    found = found_by(step, limits, number, rules, **sizes)
    for row, limit in enumerate(limits):
        prefix = [token for token in rules["prefix"][row] if token] if "prefix" in rules else []
        rule = Rules(
            limit,
            rules["min_lengths"][row] if "min_lengths" in rules else 1,
            tuple(prefix),
            rules.get("no_repeat_ngram", 0),
            tuple(rules["slots"][row].tolist()) if "slots" in rules else (),
            rules["second"][row] if "second" in rules else PAD_ID,
            tuple(BANNED[row % len(BANNED)]) if "steps" in rules else (),
            rules["most"][row] if "most" in rules else 99,
        )
        assert_found(found, row, list_beam(tables[row], rule, beam_size, alpha))

    graph = search(tables, limits, num_hypotheses=number, **sizes, **rules)
    for ours, graphs in zip(found, graph, strict=True):
        assert ours.dtype == graphs.dtype and ours.shape == graphs.shape
        np.testing.assert_allclose(ours, graphs, rtol=1e-5, atol=1e-5)
    assert step.sizes[0] == count and step.sizes[-1] < count  # finished sentences leave


@pytest.mark.parametrize(("lookahead", "steps"), [(8, 1), (9, 10)])
def test_a_lookahead_stops_it_where_it_stops_the_graph(lookahead, steps):
    step = TableStep(table_of(EARLY_OR_LATE))
    found = found_by(step, [10], lookahead=lookahead)
    expected = search(table_of(EARLY_OR_LATE), [10], beam_size=2, lookahead=lookahead)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    assert len(step.sizes) == steps


def test_a_lookahead_of_the_search_in_numpy_stops_a_sentence_whatever_else_is_in_its_batch():
    tables = np.concatenate([table_of(EARLY_OR_LATE), *[table_of(ENDLESS)] * 8])
    assert found_by(TableStep(tables), [10] * 9, lookahead=8).tokens[0, 0, 0] == EOS_ID


def test_the_search_in_numpy_of_an_empty_batch_gives_no_hypotheses():
    found = found_by(TableStep(random_tables(0, 8)), [], number=2)
    assert [column.shape for column in found] == [(0, 2, 0), (0, 2), (0, 2), (0, 2)]


@pytest.mark.parametrize("size", [11, 352, 353, 1000])
def test_the_best_of_many_equal_top_k_ties_included(size):
    rng = np.random.default_rng(size)
    values = rng.integers(0, 9, [20, size]).astype(np.float32)
    values[rng.random(values.shape) < 0.7] = -np.inf
    values[0] = -np.inf
    for ours, graphs in zip(_best_of_many(values, 11), tf.math.top_k(values, 11), strict=True):
        assert ours.tolist() == graphs.numpy().tolist()


@pytest.fixture(scope="module")
def in_float32(translator) -> InterpreterPool:
    return InterpreterPool(lite_file(translator.model, "float32"), threads=1)


def test_the_best_tokens_in_the_file_are_those_of_all_its_logits(in_float32):
    source, tokens = np.array([[5, 6, 7, EOS_ID]], np.int32), np.full([1, 4], 5, np.int32)
    inputs = tokens, 0, np.arange(4, dtype=np.int32).reshape(1, 4, 1)
    with in_float32.lend() as interpreter:
        logits = interpreter.encode(source)(*inputs)
        found = interpreter.encode(source).best(*inputs)
    for one, other in zip(found, _best_tokens(logits, 8, NextToken()), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)


def in_litert(translator: Translator, lite: InterpreterPool, **options) -> Translator:
    engine = LiteEngine.beside(
        GraphEngine(translator.model, translator.tokenizer), lite, **options
    )
    return Translator(engine=engine, decoding=DECODING)


@pytest.mark.parametrize(
    ("number", "settings"),
    [
        (4, {}),
        (3, {"beam_size": 7, "alpha": 1.5, "batch_tokens": 200}),
        (4, {"min_length": 12, "no_repeat_ngram": 2, "max_length": 30}),
    ],
)
def test_float32_finds_what_the_model_finds(translator, in_float32, texts, number, settings):
    lite = in_litert(translator, in_float32).translate(texts, n_best=number, **settings)
    assert_same(lite, translator.translate(texts, n_best=number, **settings))


@pytest.mark.parametrize(
    "later",
    [
        {"positions": "relative", "attention_window": 2, "activation": "swiglu"},
        {"positions": "rotary", "activation": "geglu", "norm": "rms"},
    ],
    ids=["relative-window-swiglu", "rotary-geglu-rms"],
)
def test_steps_of_later_choices_give_the_logits_of_the_model(later):
    model, random, width = small_model(20, **later), np.random.default_rng(1), 2
    source = random.integers(4, 20, [2, 9]).astype(np.int32)
    source[1, 5:] = 0
    step, cache = model.step_function(), model.initial_cache(source)
    interpreter = ModelInterpreter(lite_file(model, "float32"), 1)
    lite = interpreter.encode(source, model.config.attention_window)
    ancestry = np.empty([2, width, 0], np.int32)
    for index in range(34):  # the cache grows in steps of 8, or with a window has 8 columns
        own = np.broadcast_to(np.arange(width, dtype=np.int32), [2, width])[..., np.newaxis]
        ancestry = np.concatenate([ancestry, own], axis=-1)
        tokens = random.integers(4, 20, [2, width]).astype(np.int32)
        logits, cache = step(tokens, index, ancestry, cache)
        np.testing.assert_allclose(lite(tokens, index, ancestry), logits, atol=1e-4)
        parents = random.integers(0, width, [2, width, 1])
        ancestry = np.take_along_axis(ancestry, parents, axis=1)
    columns = 8 if "attention_window" in later else 40
    assert lite._signature.input("past_keys_0").shape[2] == width * columns


def test_a_model_with_frozen_layers_and_adapters_is_converted():
    model = small_model(20)
    plain = lite_file(model, "float32")
    model.enable_lora(2)
    assert len(lite_file(model, "float32")) == pytest.approx(len(plain), rel=0.1)


def test_without_the_package_of_litert_the_interpreter_is_tensorflows(
    translator, in_float32, texts, monkeypatch
):
    pytest.importorskip("ai_edge_litert.interpreter")
    source, tokens = np.array([[5, 6, 7, EOS_ID]], np.int32), np.full([1, 4], 5, np.int32)
    found, interpreters = [], []
    for module in ("ai_edge_litert.interpreter", "tensorflow.lite.python.interpreter"):
        interpreters.append(InterpreterPool(in_float32.content, threads=1))
        with interpreters[-1].lend() as interpreter:
            found.append(interpreter.encode(source)(tokens, 0, np.zeros([1, 4, 1], np.int32)))
        assert type(new_interpreter(in_float32.content, 1)).__module__ == module
        monkeypatch.setitem(sys.modules, "ai_edge_litert.interpreter", None)
    np.testing.assert_allclose(*found, atol=1e-5)  # the same file and search, other kernels
    one, other = (in_litert(translator, each) for each in interpreters)
    assert_same(one.translate(texts, n_best=4), other.translate(texts, n_best=4))


def test_simultaneous_searches_use_different_interpreters(translator, in_float32, texts):
    with in_float32.lend() as one, in_float32.lend() as other:
        assert one is not other
    lite = in_litert(translator, in_float32, streams=3)
    assert_same(lite.translate(texts, n_best=4), translator.translate(texts, n_best=4))


def with_figures(found: list[Translation]) -> list[tuple]:
    return [(one, one.score, one.log_prob, one.tokens) for one in found]


def test_small_batches_find_the_same_to_the_last_bit(translator, in_float32, texts):
    lite, sizes = in_litert(translator, in_float32), []
    whole = lite.translate(texts)
    lite.engine.most_beams = 4 * DECODING.beam_size
    again = lite.translate(texts, progress=sizes.append)
    assert max(np.diff([0, *sizes])) == 4 < len(texts)
    assert with_figures(again) == with_figures(whole)


def test_a_wide_model_is_searched_64_beams_at_a_time(translator, in_float32, monkeypatch):
    assert in_litert(translator, in_float32).engine.most_beams == sys.maxsize
    monkeypatch.setattr("tf_transformer.decoding.streams._WIDE", 1)
    assert in_litert(translator, in_float32).engine.most_beams == 64


def test_a_prefix_is_continued_as_the_model_continues_it(translator, in_float32, texts):
    prefixes = [["Der", "", "Am Montag"][i % 3] for i in range(len(texts))]
    lite = in_litert(translator, in_float32)
    found = lite.translate(texts, prefix=prefixes, n_best=1)
    assert_same(found, translator.translate(texts, prefix=prefixes, n_best=1))


def test_int8_translates_nearly_as_float32(
    translator, trained_run, tmp_path, monkeypatch, caplog
):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    texts = trained_run.lines("train.en")[:150]
    loaded = load(trained_run.path, precision="int8", litert=True)
    found, expected = loaded.translate(texts), translator.translate(texts)
    # Not all are equal: how many differ depends on how well this machine's run learned.
    alike = [SequenceMatcher(None, *each).ratio() for each in zip(found, expected, strict=True)]
    assert np.mean(alike) >= 0.9
    loaded.engine.most_beams = 64
    assert with_figures(loaded.translate(texts)) == with_figures(found)

    (kept,) = (tmp_path / "tf_transformer").glob("*-int8-*.tflite")
    weights = Run.open(trained_run.path).weights(None)
    # The weights are not in float32.
    assert kept.stat().st_size < 0.5 * weights.stat().st_size
    kept.write_bytes(b"changed")  # and not converted again
    assert cached_lite_file(translator.model, "int8", weights) == b"changed"

    with pytest.raises(UserError, match="LiteRT cannot sample: leave out `litert`"):
        loaded.translate(texts, sample=True)
    with pytest.raises(UserError, match="without it for a SavedModel"):
        loaded.export(tmp_path / "exported")
    with pytest.raises(UserError, match="excludes `ensemble`: LiteRT is for one model"):
        load(trained_run.path, litert=True, ensemble=[str(trained_run.path)])
    with pytest.raises(UserError, match="excludes `precision='bfloat16'`"):
        load(trained_run.path, precision="bfloat16", litert=True)


def test_litert_in_float32_is_an_option_of_loading(
    translator, trained_run, texts, in_float32, tmp_path, monkeypatch, caplog
):
    monkeypatch.setattr(
        "tf_transformer.loading.translators.cached_lite_file", lambda *_: in_float32.content
    )
    loaded = load(trained_run.path, litert=True)
    expected = translator.translate(texts)
    monkeypatch.setattr(GraphEngine, "search_ids", None)  # only TensorFlow uses it
    found = loaded.translate(texts, beam_size=4, jit_compile=True)
    assert found == expected and "no effect in LiteRT" in caplog.text
    (tmp_path / "model.keras").touch()
    with pytest.raises(UserError, match="LiteRT cannot search with several alphas"):
        loaded.engine.translate(texts, DECODING, alphas=(0.0, 0.6))
    with pytest.raises(UserError, match="`litert` is not for a .keras file"):
        load(tmp_path / "model.keras", litert=True)
