"""Attention against equation 1 in NumPy, and against Keras's own layer; its masks."""

import inspect

import keras
import numpy as np
import pytest
from contract import (
    Case,
    attention,
    check_layer,
    check_padding_is_ignored,
    hidden_states,
    multi_head,
    randomized,
)

from tf_transformer.layers import MultiHeadAttention, scaled_dot_product_attention
from tf_transformer.layers.attention import causal_mask, combine_masks, padding_mask

BIAS = {"use_bias": True}
QUERY, VALUE = hidden_states(2, 3, 8), hidden_states(2, 5, 8, seed=1)
SELF, CROSS = {"query": QUERY}, {"query": QUERY, "value": VALUE}

CASES = [
    Case(MultiHeadAttention, arguments, inputs)
    for arguments, inputs in (
        ({"num_heads": 2}, SELF),
        ({"num_heads": 4}, CROSS),
        ({"num_heads": 3, "key_dim": 5, "value_dim": 7, "dropout": 0.1}, CROSS),
        ({"num_heads": 2, "query_key_gain": 0.5, "value_gain": 2.0} | BIAS, SELF),
        ({"num_heads": 2, "key_dim": 3} | BIAS, CROSS),
    )
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_multi_head_attention_keeps_the_contract(case, tmp_path):
    check_layer(case, tmp_path)
    check_padding_is_ignored(case)


@pytest.mark.parametrize("masked", [False, True])
def test_scaled_dot_product_attention_is_equation_1(masked):
    query, key = hidden_states(2, 3, 4, 6), hidden_states(2, 3, 5, 6, seed=1)
    value = hidden_states(2, 3, 5, 7, seed=2)
    mask = np.random.default_rng(3).random((2, 3, 4, 5)) < 0.7 if masked else None
    outputs, weights = scaled_dot_product_attention(query, key, value, mask)
    for row, head in np.ndindex(2, 3):
        at = row, head
        expected = attention(query[at], key[at], value[at], mask[at] if masked else None)
        np.testing.assert_allclose(outputs[at], expected, atol=1e-5)
    np.testing.assert_allclose(np.sum(weights, axis=-1), 1.0, atol=1e-6)
    if masked:
        assert np.all(np.asarray(weights)[~mask] == 0)


@pytest.mark.parametrize(
    "sizes", [{}, {"key_dim": 3}, {"value_dim": 6}, BIAS, {"key_dim": 3} | BIAS]
)
@pytest.mark.parametrize("value", [None, VALUE], ids=["self", "cross"])
def test_multi_head_attention_equals_separate_heads(sizes, value):
    layer = MultiHeadAttention(num_heads=4, **sizes)
    layer.build(QUERY.shape, VALUE.shape)
    randomized(layer)
    outputs = layer(QUERY, value)
    expected = multi_head(layer, QUERY, QUERY if value is None else value)
    np.testing.assert_allclose(outputs, expected, rtol=1e-4, atol=1e-4)


def test_kernels_are_xavier_uniform_times_their_gain():
    layer = MultiHeadAttention(2, query_key_gain=0.5, value_gain=2.0)
    layer.build((None, None, 400), (None, None, 200))
    gains = {"query": 0.5, "key": 0.5, "value": 2.0, "output": 1.0}
    for name, gain in gains.items():
        kernel = getattr(layer, f"{name}_dense").kernel.numpy()
        limit = gain * np.sqrt(6 / sum(kernel.shape))
        assert 0.999 * limit < kernel.max() <= limit and -limit <= kernel.min() < -0.999 * limit
        # Uniform: its deciles are evenly spaced.
        deciles = np.quantile(kernel, np.linspace(0, 1, 11))
        np.testing.assert_allclose(deciles, np.linspace(-limit, limit, 11), atol=0.02 * limit)


def test_dropout_applies_to_the_weights_in_training_only():
    keras.utils.set_random_seed(1)
    layer = MultiHeadAttention(1, value_dim=5, dropout=0.5)
    layer.build((None, None, 5))
    layer.output_dense.kernel.assign(np.eye(5))
    query, key = hidden_states(40, 1, 3, 5), hidden_states(40, 1, 5, 5, seed=1)
    heads = query, key, np.tile(np.eye(5, dtype="float32"), (40, 1, 1, 1))
    outputs, weights = layer.attend(*heads, training=True)
    _, expected = scaled_dot_product_attention(*heads)
    np.testing.assert_array_equal(weights, expected)
    factors = np.asarray(outputs)[:, None] / np.asarray(weights)
    np.testing.assert_allclose(factors, np.where(factors > 1, 2.0, 0.0), rtol=1e-6)
    assert 0.4 < np.mean(factors == 0) < 0.6
    np.testing.assert_array_equal(layer.attend(*heads)[0][:, None], weights)


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
@pytest.mark.parametrize(
    ("value", "argument"), [(None, "value_mask"), (None, "key_mask"), (QUERY, "query_mask")]
)
def test_every_mask_applies_in_self_attention(value, argument, policy):
    layer = MultiHeadAttention(num_heads=2, dtype=policy)
    mask = np.array([[True, True, False]] * 2)
    masked = layer(QUERY, value, **{argument: mask})
    seen = layer(QUERY, QUERY[:, :2])
    tolerance = 1e-6 if policy == "float32" else 0.05
    np.testing.assert_allclose(*(np.float32(x) for x in (masked, seen)), atol=tolerance)
    assert np.abs(np.float32(masked) - np.float32(layer(QUERY))).max() > 2 * tolerance


def test_attention_mask_and_padding_are_combined():
    layer = MultiHeadAttention(num_heads=2)
    padded = keras.layers.Masking()(np.pad(QUERY, ((0, 0), (0, 2), (0, 0))))
    outputs = layer(padded, attention_mask=causal_mask(5))
    expected = multi_head(layer, QUERY, QUERY, np.tri(3, dtype=bool))
    np.testing.assert_allclose(outputs[:, :3], expected, atol=1e-5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_a_fully_masked_row_is_finite(dtype):
    heads = keras.ops.cast(hidden_states(1, 1, 3, 4), dtype)
    mask = np.tri(3, k=-1, dtype=bool)  # the first query sees nothing
    outputs, weights = scaled_dot_product_attention(heads, heads, heads, mask)
    assert outputs.dtype == weights.dtype == dtype
    assert np.all(np.isfinite(keras.ops.cast(outputs, "float32")))


def test_large_float16_scores_get_a_float32_softmax():
    query = keras.ops.full((1, 1, 1, 4), 60.0, "float16")
    key = keras.ops.cast([[[[60.0] * 4, [60.0] * 3 + [59.0]]]], "float16")
    value = keras.ops.cast([[[[1.0], [0.0]]]], "float16")
    outputs, _ = scaled_dot_product_attention(query, key, value)
    np.testing.assert_allclose(keras.ops.cast(outputs, "float32"), 1.0, atol=1e-3)


@pytest.mark.parametrize("sizes", [{}, {"key_dim": 4}, {"value_dim": 4}])
def test_heads_that_do_not_divide_the_width_are_refused(sizes):
    layer = MultiHeadAttention(num_heads=7, **sizes)
    with pytest.raises(ValueError, match="Received: num_heads=7, d_model=512"):
        layer.build((None, None, 512))


# --- Masks -------------------------------------------------------------------------------

KEYS = np.array([[True, True, False], [True, False, False]])  # [B, S]
CAUSAL = np.tri(3, dtype=bool)[None]  # [1, T, S]


def test_padding_has_the_id_0():
    ids = np.array([[5, 1, 2, 3, 0], [7, 0, 0, 0, 0]])
    expected = [[True, True, True, True, False], [True, False, False, False, False]]
    np.testing.assert_array_equal(padding_mask(ids), expected)


def test_causal_mask_hides_later_positions():
    np.testing.assert_array_equal(causal_mask(3), CAUSAL)


@pytest.mark.parametrize(
    ("key_mask", "attention_mask", "expected"),
    [
        (KEYS, None, KEYS[:, None, None, :]),
        (None, CAUSAL, CAUSAL[:, None]),
        (KEYS, CAUSAL, KEYS[:, None, None, :] & CAUSAL[:, None]),
        (KEYS.astype("int32"), CAUSAL.astype("int32"), (KEYS[:, None] & CAUSAL)[:, None]),
    ],
    ids=["keys", "attention", "both", "integers"],
)
def test_combined_mask_fits_the_scores(key_mask, attention_mask, expected):
    combined = np.asarray(combine_masks(key_mask, attention_mask))
    assert combined.dtype == bool
    np.testing.assert_array_equal(combined, expected)


@pytest.mark.parametrize("mask", [np.ones((3, 3), bool), np.ones(3, bool)])
def test_an_attention_mask_without_batch_axis_is_refused(mask):
    """[B, S], as in other libraries, looks like [T, S]."""
    inputs = np.concatenate([QUERY, QUERY[:1]])
    with pytest.raises(ValueError, match=r"give mask\[:, None, :\] for a padding mask"):
        MultiHeadAttention(num_heads=2)(inputs, attention_mask=mask)


# --- Keras's own layer -------------------------------------------------------------------

Q, V, K = (hidden_states(2, n, 8, seed=n) for n in (4, 5, 5 + 2))
K = K[:, :5, :6]
PADDING = np.arange(5) < np.array([[5], [3]])
ALLOWED = np.random.default_rng(1).random((2, 4, 5)) < 0.7
ALLOWED[..., 0] = True  # results for fully masked rows differ

CALLS = {
    "value": {},
    "key": {"key": K},
    "causal": {"use_causal_mask": True},
    "attention mask": {"attention_mask": ALLOWED},
    "value mask": {"value_mask": PADDING},
    "all": {
        "key": K, "value_mask": PADDING, "key_mask": np.arange(5) < np.array([[3], [4]]),
        "attention_mask": ALLOWED, "use_causal_mask": True,
    },
}  # fmt: skip


def equal_layers(**inputs) -> tuple[keras.layers.Layer, keras.layers.Layer]:
    ours = MultiHeadAttention(2, key_dim=3, value_dim=5, use_bias=True)
    theirs = keras.layers.MultiHeadAttention(2, key_dim=3, value_dim=5)
    ours(Q, V, **inputs), theirs(Q, V, **inputs)
    for name in ("query", "key", "value", "output"):
        our, dense = getattr(ours, f"{name}_dense"), getattr(theirs, f"_{name}_dense")
        our.bias.assign(keras.random.normal(our.bias.shape))
        dense.kernel.assign(np.asarray(our.kernel).reshape(dense.kernel.shape))
        dense.bias.assign(np.asarray(our.bias).reshape(dense.bias.shape))
    return ours, theirs


def test_call_takes_the_arguments_of_keras_in_the_same_order():
    ours, theirs = (
        list(inspect.signature(cls.call).parameters)
        for cls in (MultiHeadAttention, keras.layers.MultiHeadAttention)
    )
    assert ours == theirs


@pytest.mark.parametrize("name", CALLS)
def test_outputs_and_scores_equal_those_of_keras(name):
    options = CALLS[name]
    ours, theirs = equal_layers(**{"key": options["key"]} if "key" in options else {})
    for scores in (False, True):
        actual, expected = (
            layer(Q, V, **options, return_attention_scores=scores) for layer in (ours, theirs)
        )
        pairs = zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True)
        for one, other in pairs:
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_third_tensor_is_the_key_and_needs_a_value():
    ours, theirs = equal_layers(key=K)
    np.testing.assert_allclose(ours(Q, V, K), theirs(Q, V, K), atol=1e-5)
    with pytest.raises(ValueError, match="`key` needs a `value`"):
        ours(Q, key=K)


def test_symbolic_scores_have_the_shape_of_eager_ones():
    layer = MultiHeadAttention(2)
    inputs = keras.Input((None, 8)), keras.Input((5, 8))
    outputs, scores = layer(*inputs, return_attention_scores=True)
    assert (outputs.shape, scores.shape) == ((None, None, 8), (None, 2, None, 5))
    model = keras.Model(inputs, scores)
    np.testing.assert_allclose(model([Q, V]).numpy().sum(-1), 1, atol=1e-6)
