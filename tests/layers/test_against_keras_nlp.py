"""KerasNLP's layers, an independent implementation, compute what ours do from equal weights."""

import keras
import keras_nlp
import numpy as np
import pytest

from tf_transformer.layers import DecoderLayer, EncoderLayer, sinusoidal_positions

D, H, F = 16, 4, 24


def copy_attention(ours, theirs):
    """Ours has no biases and kernels [D, H * K]; theirs has biases, zero at first."""
    for name in ("query", "key", "value"):
        kernel = np.asarray(getattr(ours, f"{name}_kernel")).reshape(D, H, D // H)
        getattr(theirs, f"{name}_dense").kernel.assign(kernel)
    theirs.output_dense.kernel.assign(np.asarray(ours.output_kernel).reshape(H, D // H, D))


def copy_feed_forward(ours, theirs):
    for name, part in (("intermediate", ours.inner), ("output", ours.outer)):
        dense = getattr(theirs, f"_feedforward_{name}_dense")
        dense.kernel.assign(part.kernel)
        dense.bias.assign(part.bias)


def with_random_biases_and_norms(layer):
    """Weights that start at 0 or 1 would hide a wrong use of them."""
    for weight in layer.trainable_variables:
        if weight.path.rpartition("/")[2] in ("bias", "beta", "gamma"):
            weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))


def copy_norm(ours, theirs):
    theirs.gamma.assign(ours.norm.gamma)
    theirs.beta.assign(ours.norm.beta)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_equals_keras_nlp(norm_first):
    ours = EncoderLayer(H, F, norm_first=norm_first)
    theirs = keras_nlp.layers.TransformerEncoder(
        F, H, activation="relu", layer_norm_epsilon=1e-6, normalize_first=norm_first
    )
    x = keras.random.normal((3, 7, D))
    mask = np.arange(7)[None] < np.array([[7], [4], [1]])
    ours(x), theirs(x)
    with_random_biases_and_norms(ours)
    copy_attention(ours.self_attention, theirs._self_attention_layer)
    copy_feed_forward(ours.feed_forward, theirs)
    copy_norm(ours.self_attention_norm, theirs._self_attention_layer_norm)
    copy_norm(ours.feed_forward_norm, theirs._feedforward_layer_norm)

    expected = theirs(x, padding_mask=mask)
    np.testing.assert_allclose(np.asarray(ours(x, mask=mask)), expected, atol=2e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_equals_keras_nlp(norm_first):
    ours = DecoderLayer(H, F, norm_first=norm_first)
    theirs = keras_nlp.layers.TransformerDecoder(
        F, H, activation="relu", layer_norm_epsilon=1e-6, normalize_first=norm_first
    )
    target, encoded = keras.random.normal((3, 6, D)), keras.random.normal((3, 7, D))
    mask = np.arange(7)[None] < np.array([[7], [4], [1]])
    ours(target, encoded), theirs(target, encoded)
    with_random_biases_and_norms(ours)
    copy_attention(ours.self_attention, theirs._self_attention_layer)
    copy_attention(ours.cross_attention, theirs._cross_attention_layer)
    copy_feed_forward(ours.feed_forward, theirs)
    copy_norm(ours.self_attention_norm, theirs._self_attention_layer_norm)
    copy_norm(ours.cross_attention_norm, theirs._cross_attention_layer_norm)
    copy_norm(ours.feed_forward_norm, theirs._feedforward_layer_norm)

    expected = theirs(target, encoded, encoder_padding_mask=mask)
    actual = ours(target, encoded, encoder_output_mask=mask)
    np.testing.assert_allclose(np.asarray(actual), expected, atol=2e-5)


def test_positions_equal_keras_nlp():
    expected = keras_nlp.layers.SinePositionEncoding()(np.zeros((1, 50, D), "float32"))[0]
    actual = sinusoidal_positions(np.arange(50), D)
    np.testing.assert_allclose(np.asarray(actual), expected, atol=1e-5)
