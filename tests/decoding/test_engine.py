"""The operations of a step; scores, alignments and attention of given translations."""

import copy
import itertools
import logging
from collections import Counter
from types import SimpleNamespace

import keras
import numpy as np
import pytest
import tensorflow as tf
from trained import small_model, with_settings

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.decoding.attention import (
    default_layer,
    nearest_pieces,
    word_numbers,
    word_pairs,
)
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.decoding.engine import IDS, GraphEngine
from tf_transformer.decoding.interface import SearchPlan
from tf_transformer.fast.int8 import to_int8


def inner_loop(graph) -> list:
    """The operations of the innermost loop's body, without constants and arguments."""
    loops = [one for one in graph.get_operations() if one.type in ("While", "StatelessWhile")]
    if loops:
        return inner_loop(graph._get_function(loops[-1].get_attr("body").name).graph)
    return [one for one in graph.get_operations() if one.type not in ("Const", "Placeholder")]


@pytest.mark.parametrize(("precision", "limit"), [("float32", 292), ("int8", 412)])
def test_a_step_of_a_small_model_has_few_operations(precision, limit):
    """At one to three microseconds each, they are most of its time."""
    model = small_model(20, num_layers=2)
    if precision == "int8":
        to_int8(model)

    def searched(source):
        step, cache = model.step_function(), model.initial_cache(source)
        return beam_search(step, cache, tf.constant([12, 7, 9]), beam_size=4, num_hypotheses=3)

    search = tf.function(searched, [IDS], autograph=False)
    step = inner_loop(search.get_concrete_function().graph)
    assert len(step) <= limit
    kinds = Counter(one.type for one in step)
    assert kinds["ReadVariableOp"] <= 5  # of the embedding
    assert kinds["IdentityN"] == 0  # of custom gradients


@pytest.mark.parametrize("given", [False, True])
def test_xla_leaves_int8_alone_and_says_so_if_asked_for(caplog, given):
    to_int8(model := small_model(20))
    vocabulary = SimpleNamespace(vocab_size=20, model_bytes=b"", slots=lambda side: ())
    assert not GraphEngine(model, vocabulary).compiles(DecodingConfig(jit_compile=given))
    assert ("has no effect in int8" in caplog.text) is given


def test_xla_pads_a_source_no_further_than_learned_positions_reach(caplog):
    """Its step sees few lengths of sources, but 10 tokens must not become more than 12."""
    keras.utils.set_random_seed(1)
    model = small_model(20, positions="learned", max_length=12)
    vocabulary = SimpleNamespace(vocab_size=20, model_bytes=b"", slots=lambda side: ())
    source = np.arange(5, 15, dtype="int32")[np.newaxis]
    found, expected = (
        GraphEngine(model, vocabulary).search_for(SearchPlan(DecodingConfig(jit_compile=jit)))(
            source, {}
        )
        for jit in (True, False)
    )
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    assert "goes on" not in caplog.text  # after an error, the search goes on without XLA


@pytest.fixture(scope="module")
def pairs(trained_run) -> tuple[list[str], list[str]]:
    """Sources and targets, with a blank one among each."""
    sources, targets = trained_run.lines("dev.en")[:10], trained_run.lines("dev.de")[:10]
    return [*sources, "", sources[0]], [*targets, targets[0], ""]


# --- Scores ------------------------------------------------------------------------------


def test_the_probability_of_a_word_is_the_product_of_its_pieces(translator, pairs):
    """Split in Python, over the probabilities of one pass without a cache."""
    scored = translator.score(*pairs)
    for source, target, found in zip(*pairs, scored, strict=True):
        ids = [translator.codec.ids([source])[0], translator.codec.ids([target], "target")[0]]
        inputs = {"source": ids[0][None], "target": np.array([[BOS_ID, *ids[1][:-1]]])}
        probs = tf.nn.softmax(translator.model(inputs)[0]).numpy()[range(len(ids[1])), ids[1]]
        words = word_numbers(translator.codec.pieces(ids[1][:-1], "target"))
        expected = [np.prod(probs[:-1][np.array(words) == word]) for word in sorted({*words})]
        assert len(found.word_probs) == len(target.split())
        assert found.word_probs == pytest.approx(expected, rel=1e-3)
    best = translator.translate(pairs[0], n_best=2, word_probs=True)
    assert best[10][0].word_probs == () and copy.copy(best[0][1]).word_probs
    alone = translator.score(pairs[0][0], best[0][0]).word_probs  # another batch: not its bits
    assert best[0][0].word_probs == pytest.approx(alone, rel=1e-5)


def test_targets_and_sources_have_different_limits(translator, trained_run, caplog):
    source, target = trained_run.lines("dev.en")[0], " ".join(trained_run.lines("dev.de")[:3])
    whole = translator.score([source], [target])[0].num_tokens
    assert whole > 20
    for extra, expected in ((whole - 6, whole), (4, 10)):
        limited = with_settings(translator, max_source_length=6, max_extra_length=extra)
        assert limited.score([source], [target])[0].num_tokens == expected
    caplog.clear()
    with caplog.at_level(logging.WARNING, logger="tf_transformer"):
        limited.score([source], [target])
    assert caplog.messages == ["texts cut at 6 tokens: 1", "targets cut at 10 tokens: 1"]


def test_nothing_gives_nothing(translator):
    assert translator.translate([]) == []
    assert translator.score([], []) == []
    assert translator.align([], []) == []
    assert translator.attention([], []) == []


# --- Attention ---------------------------------------------------------------------------


def test_attention_has_weights_for_all_pieces_that_sum_to_1(translator, pairs):
    layers, heads = 1, translator.model.config.num_heads
    for source, target, found in zip(*pairs, translator.attention(*pairs), strict=True):
        for text, pieces in ((source, found.source), (target, found.target)):
            assert "".join(pieces[:-1]).replace("▁", " ").strip() == text
            assert pieces[-1] == "</s>"
        s, t = len(found.source), len(found.target)
        assert found.encoder.shape == (layers, heads, s, s)
        assert found.decoder.shape == (layers, heads, t, t)
        assert found.cross.shape == (layers, heads, t, s)
        for weights in (found.encoder, found.decoder, found.cross):
            np.testing.assert_allclose(weights.sum(axis=-1), 1.0, atol=1e-5)


def test_attention_is_that_of_the_model_whatever_the_batch(translator, pairs):
    together = translator.attention(*pairs)
    for source, target, found in zip(*pairs, together, strict=True):
        ids = [
            translator.codec.encode(tf.constant([text]))[0].to_tensor()
            for text in (source, target)
        ]
        read = tf.concat([[[BOS_ID]], ids[1][:, :-1]], axis=1)
        expected = translator.model.attention_weights(ids[0], read)
        for name, weights in expected.items():
            np.testing.assert_allclose(getattr(found, name), weights[:, 0], atol=1e-5)
            assert getattr(found, name).flags.writeable  # a notebook may change its copy


# --- Alignments --------------------------------------------------------------------------


def words_of_pieces(pieces: list[str]) -> list[int]:
    """The index of the word that a letter after each piece would belong to."""
    ends = list(itertools.accumulate(len(piece) for piece in pieces))
    text = "".join(pieces).replace("▁", " ")
    return [len(f"{text[:end]}x".split()) - 1 for end in ends]


def test_alignments_are_the_largest_weights_of_the_step_that_predicts_the_piece(
    translator, pairs
):
    together = translator.align(*pairs)
    for source, target, found in zip(*pairs, together, strict=True):
        (attention,) = translator.attention([source], [target])
        weights = attention.cross[0].mean(axis=0)  # of the only layer
        source_words = words_of_pieces(attention.source[:-1])
        expected = set()
        for piece, word in enumerate(words_of_pieces(attention.target[:-1])):
            if source_words:
                nearest = weights[piece, :-1].argmax()
                expected.add((source_words[nearest], word))
        assert found.pairs == sorted(expected)
        assert {word for _, word in found.pairs} == set(
            range(len(target.split()) if source else 0)
        )


def test_blank_texts_have_no_alignment(translator):
    blank = translator.align(["", "a", " "], ["a", "", ""])
    assert [alignment.pairs for alignment in blank] == [[], [], []]


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        ([], []),
        (["▁a"], [0]),
        (["▁a", "▁b", "▁c"], [0, 1, 2]),
        (["▁a", "b", "▁c", "d", "e", "."], [0, 0, 1, 1, 1, 1]),
        (["▁", "a", "b", "▁c"], [0, 0, 0, 1]),  # a lone space
        (["▁a", "▁", "中", "文"], [0, 1, 1, 1]),
        (["▁a", "▁", "▁b"], [0, 1, 1]),  # two spaces separate words like one
        (["a", "▁b"], [0, 1]),
        (["▁", "<0xF0>", "<0x9F>", "▁b"], [0, 0, 0, 1]),
    ],
)
def test_a_word_begins_at_a_space(pieces, numbers):
    assert word_numbers(pieces) == numbers


def test_words_are_aligned_if_any_of_their_pieces_is():
    source = ["▁un", "believ", "able", "▁thing"]
    target = ["▁Un", "ding", "▁un", "glaub", "lich"]
    assert word_pairs(source, target, [3, 3, 0, 1, 3]) == [(0, 1), (1, 0), (1, 1)]
    assert word_pairs([], target, [0] * 5) == []
    assert word_pairs(source, [], []) == []


@pytest.mark.parametrize(
    ("layers", "layer"), [(1, 1), (2, 2), (3, 3), (4, 4), (6, 5), (12, 10)]
)
def test_alignments_come_from_layer_5_of_6_or_the_same_relative_depth(layers, layer):
    assert default_layer(layers) == layer - 1


def test_the_nearest_piece_has_the_largest_mean_weight_of_the_heads():
    weights = np.random.default_rng(0).random((2, 3, 5, 6)).astype(np.float32)
    source = np.array([[9, 8, 7, 6, 5, EOS_ID], [9, 8, EOS_ID, PAD_ID, PAD_ID, PAD_ID]])
    found = nearest_pieces(tf.constant(weights), tf.constant(source, tf.int32)).numpy()
    for row, size in ((0, 5), (1, 2)):
        mean = (weights[row, 0] + weights[row, 1] + weights[row, 2]) / 3
        assert found[row].tolist() == [int(mean[step, :size].argmax()) for step in range(5)]
