"""Later kinds of positions, and attention within a window, against their formulas in NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from contract import (
    Case,
    check_layer,
    check_padding_is_ignored,
    heads_of,
    hidden_states,
    projected,
    randomized,
    softmax,
)

from tf_transformer.layers import Encoder, MultiHeadAttention, PositionalEmbedding
from tf_transformer.layers.positions import positions_named

T = 21  # beyond the longest relative distance, 16
X = hidden_states(2, T, 8)
REAL = np.arange(T) < np.array([[T], [17]])  # [B, T]
SIZES = {"num_heads": 2, "key_dim": 4, "value_dim": 3}


def by_distance(table) -> np.ndarray:
    """The row of each pair of query t and key s: clip(s - t, -16, 16), [T, T, K]."""
    return np.array(
        [[table[min(max(s - t, -16), 16) + 16] for s in range(T)] for t in range(T)]
    )


def turned(heads) -> np.ndarray:
    """Su et al. 2021, equation 12: each pair, as a complex number, times exp(i pos rate)."""
    half = heads.shape[-1] // 2
    pairs = heads[..., :half] + 1j * heads[..., half:]
    angles = np.arange(T)[:, None] / 10000 ** (np.arange(half) / half)
    pairs = pairs * np.exp(1j * angles)
    return np.concatenate([pairs.real, pairs.imag], axis=-1)


def self_attention(layer, x, mask) -> np.ndarray:
    """Equation 1 with Shaw et al. 2018, equations 3 and 4, or turned queries and keys."""
    query, key, value = (heads_of(layer, name, x) for name in ("query", "key", "value"))
    if layer.positions == "rotary":
        query, key = turned(query), turned(key)
    scores = np.einsum("bhtk,bhsk->bhts", query, key)
    if layer.positions == "relative":
        keys, values = (
            by_distance(w.numpy())
            for w in (layer.position_kind.keys, layer.position_kind.values)
        )
        scores += np.einsum("bhtk,tsk->bhts", query, keys)
    scores = np.where(mask, scores / np.sqrt(query.shape[-1]), -1e9)
    weights = softmax(scores)
    outputs = np.einsum("bhts,bhsv->bhtv", weights, value)
    if layer.positions == "relative":
        outputs += np.einsum("bhts,tsv->bhtv", weights, values)
    return projected(layer, "output", np.concatenate(outputs.swapaxes(0, 1), axis=-1))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("window", [0, 1, 4, 7, 50])
@pytest.mark.parametrize("positions", ["relative", "rotary", "none"])
def test_self_attention_is_its_formula(positions, window, causal):
    layer = MultiHeadAttention(**SIZES, positions=positions, attention_window=window)
    layer.build(X.shape)
    randomized(layer)
    distances = np.arange(T) - np.arange(T)[:, None]
    seen = np.abs(distances) <= (window or T)
    mask = (seen & (distances <= 0) if causal else seen) & REAL[:, None, None]
    expected = self_attention(layer, X, mask)
    options = {"query_mask": REAL, "use_causal_mask": causal}
    np.testing.assert_allclose(layer(X, **options)[0], expected[0], atol=2e-5)
    np.testing.assert_allclose(layer(X, **options)[1, :17], expected[1, :17], atol=2e-5)
    outputs, weights = layer(X, **options, return_attention_scores=True)  # not in blocks
    np.testing.assert_allclose(outputs[0], expected[0], atol=2e-5)
    assert np.all(np.asarray(weights)[0, :, ~mask[0, 0]] == 0)


def test_gradients_within_a_window_are_those_of_masked_attention():
    gradients = []
    for masked in (False, True):
        keras.utils.set_random_seed(1)
        layer = MultiHeadAttention(2, positions="relative", attention_window=3)
        with tf.GradientTape() as tape:
            outputs = layer(X, query_mask=REAL, return_attention_scores=masked)
            total = tf.reduce_sum((outputs[0] if masked else outputs)[:, :17] ** 2)
        gradients.append([tf.convert_to_tensor(g) for g in tape.gradient(total, layer.weights)])
    for one, other in zip(*gradients, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-4)


def test_memory_within_a_window_grows_linearly():
    """No tensor of the graph has more entries per position than a window takes."""
    layer, sizes = Encoder(1, num_heads=2, d_ff=8, attention_window=4), []
    for length in (64, 256):
        graph = tf.function(layer).get_concrete_function(tf.zeros((1, length, 8))).graph
        outputs = [output for each in graph.get_operations() for output in each.outputs]
        sizes.append(max(output.shape.num_elements() or 0 for output in outputs))
    assert sizes[0] >= 2 * 64 * 3 * 4 and sizes[1] <= 4.5 * sizes[0]  # scores, in three blocks


@pytest.mark.parametrize("empty", [X[:0], X[:, :0]])
def test_no_rows_and_no_positions_are_attended_to_too(empty):
    layer = MultiHeadAttention(2, positions="relative", attention_window=2)
    assert layer(empty).shape == empty.shape


@pytest.mark.parametrize("positions", ["relative", "rotary"])
def test_layers_with_later_positions_keep_the_contract(positions, tmp_path):
    arguments = {"num_heads": 2, "positions": positions, "attention_window": 2}
    case = Case(MultiHeadAttention, arguments, {"query": X[:, :5]})
    check_layer(case, tmp_path)
    check_padding_is_ignored(case)


@pytest.mark.parametrize("positions", ["relative", "rotary", "none"])
def test_nothing_is_added_to_the_embeddings(positions):
    layer = PositionalEmbedding(vocab_size=7, d_model=16, positions=positions)
    ids = np.array([[5, 1, 2]], "int32")
    np.testing.assert_allclose(layer(ids), 4 * layer.embeddings.numpy()[ids], atol=1e-6)
    assert len(layer.weights) == 1


def test_rotary_scores_depend_on_the_distance_only():
    rotary, (query, key) = positions_named("rotary"), hidden_states(2, 1, 1, 5, 6)
    scores = [
        np.asarray(
            rotary.rotate(query, at) @ keras.ops.swapaxes(rotary.rotate(key, at), -1, -2)
        )
        for at in (np.arange(5), np.arange(5) + 900)
    ]
    np.testing.assert_allclose(*scores, atol=1e-3)


@pytest.mark.parametrize("options", [{"positions": "rotary"}, {"attention_window": 3}])
def test_positions_and_windows_are_for_self_attention(options):
    with pytest.raises(ValueError, match="are for self-attention: leave out `value`"):
        MultiHeadAttention(2, **options)(X, X[:, :4])
