"""Attention takes the arguments of `keras.layers.MultiHeadAttention` and gives its results."""

import inspect

import keras
import numpy as np
import pytest
from contract import hidden_states

from tf_transformer.layers import MultiHeadAttention

QUERY, VALUE, KEY = (hidden_states(2, n, 8, seed=n) for n in (4, 5, 5 + 2))
KEY = KEY[:, :5, :6]
PADDING = np.arange(5) < np.array([[5], [3]])
ALLOWED = np.random.default_rng(1).random((2, 4, 5)) < 0.7
ALLOWED[..., 0] = True  # results for fully masked rows differ

CALLS = {
    "value": {},
    "key": {"key": KEY},
    "causal": {"use_causal_mask": True},
    "attention mask": {"attention_mask": ALLOWED},
    "value mask": {"value_mask": PADDING},
    "all": {
        "key": KEY, "value_mask": PADDING, "key_mask": np.arange(5) < np.array([[3], [4]]),
        "attention_mask": ALLOWED, "use_causal_mask": True,
    },
}  # fmt: skip


def equal_layers(**inputs) -> tuple[keras.layers.Layer, keras.layers.Layer]:
    ours = MultiHeadAttention(2, key_dim=3, value_dim=5, use_bias=True)
    theirs = keras.layers.MultiHeadAttention(2, key_dim=3, value_dim=5)
    ours(QUERY, VALUE, **inputs), theirs(QUERY, VALUE, **inputs)
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
            layer(QUERY, VALUE, **options, return_attention_scores=scores)
            for layer in (ours, theirs)
        )
        pairs = zip(keras.tree.flatten(actual), keras.tree.flatten(expected), strict=True)
        for one, other in pairs:
            np.testing.assert_allclose(one, other, atol=1e-5)


def test_a_third_tensor_is_the_key_and_needs_a_value():
    ours, theirs = equal_layers(key=KEY)
    np.testing.assert_allclose(ours(QUERY, VALUE, KEY), theirs(QUERY, VALUE, KEY), atol=1e-5)
    with pytest.raises(ValueError, match="`key` needs a `value`"):
        ours(QUERY, key=KEY)


def test_symbolic_scores_have_the_shape_of_eager_ones():
    layer = MultiHeadAttention(2)
    inputs = keras.Input((None, 8)), keras.Input((5, 8))
    outputs, scores = layer(*inputs, return_attention_scores=True)
    assert (outputs.shape, scores.shape) == ((None, None, 8), (None, 2, None, 5))
    model = keras.Model(inputs, scores)
    np.testing.assert_allclose(model([QUERY, VALUE]).numpy().sum(-1), 1, atol=1e-6)
