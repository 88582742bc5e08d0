"""The extensions of the beams that a search considers, and their order."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.decoding.candidates import (
    best_candidates,
    blocked_top_k,
    log_sum_exp,
)
from tf_transformer.decoding.rules import NextToken

FREE = NextToken()  # any token may come


def coarse_normal(shape: tuple[int, ...], levels_per_unit: int) -> np.ndarray:
    """Normal values rounded to a grid: the coarser it is, the more ties."""
    values = np.random.default_rng(0).normal(size=shape)
    return (np.round(values * levels_per_unit) / levels_per_unit).astype(np.float32)


def flat_top_k(logits: np.ndarray, log_probs: np.ndarray, k: int):
    """Parents, tokens and totals of the best over the flat [W * V], without PAD and BOS."""
    totals = log_probs[..., np.newaxis] + tf.nn.log_softmax(logits).numpy()
    totals[..., [PAD_ID, BOS_ID]] = -np.inf
    best, position = tf.math.top_k(totals.reshape(len(logits), -1), k)
    return (
        position.numpy() // logits.shape[-1],
        position.numpy() % logits.shape[-1],
        best.numpy(),
    )


@pytest.mark.parametrize("levels_per_unit", [1, 4, 1_000_000])
@pytest.mark.parametrize(
    ("size", "k"),
    [(5, 2), (600, 11), (1000, 11), (1280, 10), (1281, 10), (4096, 3), (5003, 16), (8000, 11)],
)
def test_blocked_top_k_equals_top_k_ties_included(size, k, levels_per_unit):
    values = coarse_normal((3, 2, size), levels_per_unit)
    best, positions = blocked_top_k(tf.constant(values), k)
    expected_best, expected_positions = tf.math.top_k(values, k)
    np.testing.assert_array_equal(best, expected_best)
    np.testing.assert_array_equal(positions, expected_positions)


@pytest.mark.parametrize(("size", "fewest"), [(1000, 209), (8000, 593), (37_000, 1275)])
def test_blocks_leave_few_values_to_sort(size, fewest, monkeypatch):
    sorted_sizes, top_k = [], tf.math.top_k

    def counting(values, k):
        sorted_sizes.append(values.shape[-1])
        return top_k(values, k)

    monkeypatch.setattr(tf.math, "top_k", counting)
    blocked_top_k(tf.zeros([1, 1, size]), 11)
    assert sum(sorted_sizes) < 1.1 * fewest  # 2 sqrt(11 V)


def test_blocked_top_k_never_returns_its_own_padding():
    values = np.full([1, 1, 257], -np.inf, np.float32)  # no block size divides it
    values[0, 0, -1] = 0.0
    _, positions = blocked_top_k(tf.constant(values), 2)
    assert positions.numpy().tolist() == [[[256, 0]]]


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("vocabulary_size", [8, 50, 3000])
def test_candidates_are_the_best_extensions_ties_in_order_of_beam_and_token(
    vocabulary_size, tied
):
    if tied:
        logits = np.repeat(coarse_normal((20, 1, vocabulary_size), 1), 3, axis=1)
        log_probs = np.zeros([20, 3], np.float32)
    else:
        logits = coarse_normal((20, 3, vocabulary_size), 1_000_000)
        log_probs = coarse_normal((20, 3), 1_000_000)
    found = best_candidates(tf.constant(logits), tf.constant(log_probs), FREE)
    parents, tokens, totals = flat_top_k(logits, log_probs, 6)
    np.testing.assert_array_equal(found.parents, parents)
    np.testing.assert_array_equal(found.last_tokens, tokens)
    np.testing.assert_allclose(found.log_probs, totals, rtol=1e-5)


def test_a_step_with_the_wrong_number_of_beams_is_refused():
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="[Ss]hape"):
        best_candidates(tf.zeros([2, 3, 8]), tf.zeros([2, 4]), FREE)


@pytest.mark.parametrize("size", [40, 2000])  # sorted at once, and in blocks
@pytest.mark.parametrize("width", [1, 3])
def test_a_sentence_that_must_continue_has_as_many_candidates_without_eos(size, width):
    logits = coarse_normal((2, width, size), 1_000_000)
    logits[..., [PAD_ID, BOS_ID, EOS_ID]] = 9.0  # the three best of all
    log_probs = -np.arange(2.0 * width, dtype=np.float32).reshape(2, width)
    rules = NextToken(must_continue=tf.constant([[True], [False]]))
    found = best_candidates(tf.constant(logits), tf.constant(log_probs), rules)
    assert (found.last_tokens[0].numpy() != EOS_ID).all()
    assert EOS_ID in found.last_tokens[1].numpy()
    totals = log_probs[0, :, np.newaxis] + tf.nn.log_softmax(logits[0]).numpy()
    totals[:, [PAD_ID, BOS_ID, EOS_ID]] = -np.inf
    best = np.sort(totals.ravel())[::-1][: found.log_probs.shape[1]]
    np.testing.assert_allclose(found.log_probs[0], best, rtol=1e-5)


@pytest.mark.parametrize("forced", [None, [[6]]])
def test_beside_a_very_probable_excluded_token_the_others_have_their_log_probability(forced):
    logits = np.zeros([1, 1, 50], np.float32)
    logits[0, 0, 7] = 200.0
    rules = NextToken(forced and tf.constant(forced), tf.constant([[[PAD_ID, 7]]]))
    found = best_candidates(tf.constant(logits), tf.zeros([1, 1]), rules)
    np.testing.assert_allclose(found.log_probs, [[-200.0]])


@pytest.mark.parametrize("scale", [1.0, 30.0, 3000.0])
def test_log_sum_exp_is_exact_for_small_and_large_logits(scale):
    logits = (scale * np.random.default_rng(0).normal(size=(2, 3, 500))).astype(np.float32)
    likely = logits.argmax(-1)[..., np.newaxis].astype(np.int32)
    found = log_sum_exp(tf.constant(logits), tf.constant(likely))
    exact = np.logaddexp.reduce(logits.astype(np.float64), axis=-1)
    np.testing.assert_allclose(found[..., 0], exact, rtol=1e-6)
