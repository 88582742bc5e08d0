"""The encoder against the left half of Figure 1 in NumPy."""

import keras
import numpy as np
import pytest
from contract import Case, check_layer, check_padding_is_ignored, hidden_states
from numpy_layers import before, encoder_layer, layer_norm, multi_head_weights, randomized

from tf_transformer.layers import Encoder, EncoderLayer

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
def test_encoder_and_its_attention_weights_match_figure_1_layer_by_layer(norm_first):
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


def test_an_attention_mask_does_not_replace_the_padding_mask():
    encoder = Encoder(num_layers=2, **LAYER)
    padded = keras.layers.Masking()(np.pad(X, ((0, 0), (0, 2), (0, 0))))
    everywhere = np.ones((7, 7), bool)
    np.testing.assert_allclose(encoder(padded)[:, :5], encoder(X), atol=1e-5)
    outputs = encoder(padded, attention_mask=everywhere)
    np.testing.assert_allclose(outputs[:, :5], encoder(X), atol=1e-5)
    scores = scores_of(encoder, attention_mask=np.eye(5, dtype=bool)[None])
    np.testing.assert_array_equal(scores, np.broadcast_to(np.eye(5), (2, 2, 2, 5, 5)))


def test_permuted_inputs_give_permuted_outputs():
    encoder = Encoder(num_layers=2, **LAYER)
    order = [3, 0, 4, 1, 2]
    expected = np.asarray(encoder(X))[:, order]
    np.testing.assert_allclose(encoder(X[:, order]), expected, atol=1e-5)
