"""The encoder against the left half of Figure 1 in NumPy."""

import inspect

import keras
import numpy as np
import pytest
from contract import Case, check_layer, check_padding_is_ignored, hidden_states
from numpy_layers import (
    before,
    encoder_layer,
    layer_norm,
    multi_head_weights,
    randomized,
)

from tf_transformer.layers import Decoder, DecoderLayer, Encoder, EncoderLayer

X = hidden_states(2, 5, 8)
INPUTS = {"inputs": X}
LAYER = {"num_heads": 2, "d_ff": 16}

CASES = [
    Case(EncoderLayer, LAYER | {"dropout": 0.1}, INPUTS),
    Case(EncoderLayer, LAYER | {"key_dim": 3, "value_dim": 5, "norm_first": True}, INPUTS),
    Case(Encoder, LAYER | {"num_layers": 2}, INPUTS),
    Case(Encoder, LAYER | {"num_layers": 2, "dropout": 0.1, "norm_first": True}, INPUTS),
]


def scores_of(encoder: Encoder, **masks: np.ndarray) -> list:
    return encoder(X, **masks, return_attention_scores=True)[1]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_encoder_keeps_the_contract(case, tmp_path):
    check_layer(case, tmp_path)
    check_padding_is_ignored(case)


@pytest.mark.parametrize("norm_first", [False, True], ids=["post-LN", "pre-LN"])
def test_encoder_and_its_attention_weights_are_figure_1_layer_by_layer(norm_first):
    encoder = Encoder(num_layers=3, **LAYER, dropout=0.5, norm_first=norm_first)
    encoder.build(X.shape)
    randomized(encoder)
    outputs, scores = encoder(X, return_attention_scores=True)
    x = X
    for layer, weights in zip(encoder.layers, scores, strict=True):
        read = before(layer.self_attention_norm, x)
        expected = multi_head_weights(layer.self_attention, read, read)
        np.testing.assert_allclose(weights, expected, rtol=1e-3, atol=1e-3)
        x = encoder_layer(layer, x)
    x = layer_norm(encoder.norm, x) if norm_first else x
    np.testing.assert_allclose(outputs, x, rtol=1e-3, atol=1e-3)
    np.testing.assert_array_equal(encoder(X), outputs)


def test_attention_weights_are_0_at_padding():
    encoder = Encoder(num_layers=2, **LAYER)
    encoder.build(X.shape)
    mask = np.arange(5) < np.array([[5], [3]])
    for weights in scores_of(encoder, mask=mask):
        np.testing.assert_array_equal(np.asarray(weights)[1, :, :, 3:], 0.0)
        assert np.all(np.asarray(weights)[0] > 0)
        np.testing.assert_allclose(np.sum(weights, axis=-1), 1.0, atol=1e-6)


def test_an_attention_mask_leaves_the_mask_of_the_inputs_alone():
    encoder = Encoder(num_layers=2, **LAYER)
    padded = keras.layers.Masking()(np.pad(X, ((0, 0), (0, 2), (0, 0))))
    everywhere = np.ones((7, 7), bool)
    np.testing.assert_allclose(encoder(padded)[:, :5], encoder(X), atol=1e-5)
    outputs = encoder(padded, attention_mask=everywhere)
    np.testing.assert_allclose(outputs[:, :5], encoder(X), atol=1e-5)
    scores = scores_of(encoder, attention_mask=np.eye(5, dtype=bool)[None])
    np.testing.assert_array_equal(scores, np.broadcast_to(np.eye(5), (2, 2, 2, 5, 5)))


@pytest.mark.parametrize("cls", [Encoder, EncoderLayer, Decoder, DecoderLayer])
def test_every_argument_has_its_type_default_and_line(cls):
    parameters = dict(inspect.signature(cls).parameters)
    assert "kwargs" in parameters
    for parameter in parameters.values():
        assert f"    {'**' * (parameter.name == 'kwargs')}{parameter.name}: " in cls.__doc__
        assert parameter.annotation is not parameter.empty or parameter.name == "kwargs"
    assert "{" not in cls.__doc__


def test_encoder_knows_order_only_from_its_inputs():
    encoder = Encoder(num_layers=2, **LAYER)
    order = [3, 0, 4, 1, 2]
    expected = np.asarray(encoder(X))[:, order]
    np.testing.assert_allclose(encoder(X[:, order]), expected, atol=1e-5)


def test_dropout_starts_at_the_embedded_input():
    encoder = Encoder(num_layers=0, **LAYER, dropout=0.5)
    ones = np.ones((1, 50, 8), "float32")
    assert set(np.unique(encoder(ones, training=True))) == {0.0, 2.0}
    np.testing.assert_array_equal(encoder(ones, training=False), ones)


@pytest.mark.parametrize("name", ["attention_dropout", "activation_dropout"])
def test_each_rate_is_of_its_sublayer(name):
    keras.utils.set_random_seed(1)
    layer = EncoderLayer(**LAYER, norm_first=True, **{name: 0.9999})
    layer.build(X.shape)
    outputs = layer(X, training=True)
    sublayers = {"attention_dropout": "self_attention", "activation_dropout": "feed_forward"}
    for sublayer in sublayers.values():
        rate = 0.9999 if sublayer == sublayers[name] else 0
        assert getattr(layer, sublayer).get_config()["dropout"] == rate
    silent = getattr(layer, sublayers[name])
    silent.set_weights([np.zeros_like(weight) for weight in silent.get_weights()])
    np.testing.assert_allclose(layer(X), outputs, atol=1e-6)


def test_each_sublayer_drops_out():
    keras.utils.set_random_seed(1)
    layer = EncoderLayer(**LAYER, dropout=0.9999, norm_first=True)
    np.testing.assert_array_equal(layer(X, training=True), X)  # the residuals alone
