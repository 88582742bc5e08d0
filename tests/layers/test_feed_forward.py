"""Equation 2 and the residual connection of Figure 1, in the paper's order and pre-LN."""

import keras
import numpy as np
import pytest
from contract import (
    Case,
    check_layer,
    check_padding_is_ignored,
    feed_forward,
    hidden_states,
    layer_norm,
    randomized,
    rms_norm,
)

from tf_transformer.layers import AddAndNorm, FeedForward

X, SUBLAYER = hidden_states(2, 3, 8), hidden_states(2, 3, 8, seed=1)
PAIR = {"inputs": X, "sublayer_output": SUBLAYER}
ACTIVATIONS = pytest.mark.parametrize("activation", ["relu", "silu", "swiglu", "geglu"])


@ACTIVATIONS
def test_feed_forward_keeps_the_contract(tmp_path, activation):
    case = Case(
        FeedForward, {"d_ff": 8, "activation": activation, "dropout": 0.1}, {"inputs": X}
    )
    check_layer(case, tmp_path)
    check_padding_is_ignored(case)


NORMS = pytest.mark.parametrize(("kind", "norm"), [("layer", layer_norm), ("rms", rms_norm)])


@pytest.mark.parametrize("norm", ["layer", "rms"])
def test_add_and_norm_keeps_the_contract(tmp_path, norm):
    case = Case(AddAndNorm, {"dropout": 0.1, "norm_first": False, "norm": norm}, PAIR)
    check_layer(case, tmp_path)
    check_padding_is_ignored(case)


@ACTIVATIONS
def test_feed_forward_equals_equation_2(activation):
    layer = FeedForward(d_ff=20, activation=activation)
    layer.build(X.shape)
    randomized(layer)
    np.testing.assert_allclose(layer(X), feed_forward(layer, X), rtol=1e-4, atol=1e-4)


def test_dropout_follows_the_activation_in_training_only():
    keras.utils.set_random_seed(1)
    layer = FeedForward(d_ff=8, dropout=0.5)
    layer.build(X.shape)
    layer.set_weights([np.eye(8), np.zeros(8)] * 2)
    kept, dropped = np.abs(X), np.asarray(layer(np.abs(X), training=True))
    np.testing.assert_allclose(dropped, np.where(dropped, 2 * kept, 0))
    assert 0.2 < np.mean(dropped == 0) < 0.8
    np.testing.assert_allclose(layer(np.abs(X)), kept)


def test_any_activation_survives_serialisation():
    for activation in ("gelu", keras.ops.tanh, keras.activations.gelu):
        layer = FeedForward(8, activation)
        again = FeedForward.from_config(layer.get_config())
        again.build(X.shape)
        again.set_weights([np.eye(8), np.zeros(8)] * 2)
        np.testing.assert_allclose(again(X), keras.activations.get(activation)(X), atol=1e-6)


@NORMS
@pytest.mark.parametrize("epsilon", [1e-6, 0.5])
def test_post_ln_normalises_the_sum(epsilon, kind, norm):
    layer = AddAndNorm(norm_epsilon=epsilon, norm=kind)
    layer.build(X.shape)
    randomized(layer)
    np.testing.assert_array_equal(layer.before(X), X)
    expected = norm(layer.norm, X + SUBLAYER, epsilon)
    np.testing.assert_allclose(layer(X, SUBLAYER), expected, rtol=1e-4, atol=1e-4)


@NORMS
def test_pre_ln_normalises_the_input_of_the_sublayer(kind, norm):
    layer = AddAndNorm(norm_first=True, norm=kind)
    layer.build(X.shape)
    randomized(layer)
    np.testing.assert_allclose(layer.before(X), norm(layer.norm, X), atol=1e-4)
    np.testing.assert_array_equal(layer(X, SUBLAYER), X + SUBLAYER)


def test_an_unbuilt_layer_wraps_a_sublayer_in_one_line():
    layer = AddAndNorm(norm_first=True)
    np.testing.assert_allclose(layer(X, 2 * layer.before(X)), X + 2 * layer.norm(X), rtol=1e-6)
