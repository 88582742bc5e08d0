"""KerasNLP's layers, an independent implementation, compute what ours do from equal weights."""

import keras
import keras_nlp
import numpy as np
import pytest

from tf_transformer.layers import DecoderLayer, EncoderLayer, sinusoidal_positions

D, H, F = 16, 4, 24
OPTIONS = {"activation": "relu", "layer_norm_epsilon": 1e-6}
MASK = np.arange(7)[None] < np.array([[7], [4], [1]])


def copy_attention(ours, theirs):
    """Ours has kernels [D, H * K] and no biases; the biases of theirs are initially zero."""
    for name in ("query", "key", "value"):
        kernel = np.asarray(getattr(ours, f"{name}_dense").kernel).reshape(D, H, D // H)
        getattr(theirs, f"{name}_dense").kernel.assign(kernel)
    theirs.output_dense.kernel.assign(
        np.asarray(ours.output_dense.kernel).reshape(H, D // H, D)
    )


def copy_norm(ours, theirs):
    theirs.gamma.assign(ours.norm.gamma)
    theirs.beta.assign(ours.norm.beta)


def copy_layer(ours, theirs):
    """Makes our biases and norms random first: 0 and 1 would hide wrong uses."""
    for weight in ours.trainable_variables:
        if weight.path.rpartition("/")[2] in ("bias", "beta", "gamma"):
            weight.assign_add(keras.random.normal(weight.shape, stddev=0.3))
    for name in ("self_attention", "cross_attention"):
        if hasattr(ours, name):
            copy_attention(getattr(ours, name), getattr(theirs, f"_{name}_layer"))
            copy_norm(getattr(ours, f"{name}_norm"), getattr(theirs, f"_{name}_layer_norm"))
    for name, part in (
        ("intermediate", ours.feed_forward.inner),
        ("output", ours.feed_forward.outer),
    ):
        dense = getattr(theirs, f"_feedforward_{name}_dense")
        dense.kernel.assign(part.kernel)
        dense.bias.assign(part.bias)
    copy_norm(ours.feed_forward_norm, theirs._feedforward_layer_norm)


@pytest.mark.parametrize("norm_first", [False, True])
def test_encoder_layer_equals_keras_nlp(norm_first):
    ours = EncoderLayer(H, F, norm_first=norm_first)
    theirs = keras_nlp.layers.TransformerEncoder(F, H, **OPTIONS, normalize_first=norm_first)
    x = keras.random.normal((3, 7, D))
    ours(x), theirs(x)
    copy_layer(ours, theirs)
    expected = theirs(x, padding_mask=MASK)
    np.testing.assert_allclose(np.asarray(ours(x, mask=MASK)), expected, atol=2e-5)


@pytest.mark.parametrize("norm_first", [False, True])
def test_decoder_layer_equals_keras_nlp(norm_first):
    ours = DecoderLayer(H, F, norm_first=norm_first)
    theirs = keras_nlp.layers.TransformerDecoder(F, H, **OPTIONS, normalize_first=norm_first)
    target, encoded = keras.random.normal((3, 6, D)), keras.random.normal((3, 7, D))
    ours(target, encoded), theirs(target, encoded)
    copy_layer(ours, theirs)
    expected = theirs(target, encoded, encoder_padding_mask=MASK)
    actual = ours(target, encoded, encoder_output_mask=MASK)
    np.testing.assert_allclose(np.asarray(actual), expected, atol=2e-5)


def test_positions_equal_keras_nlp():
    expected = keras_nlp.layers.SinePositionEncoding()(np.zeros((1, 50, D), "float32"))[0]
    actual = sinusoidal_positions(np.arange(50), D)
    np.testing.assert_allclose(np.asarray(actual), expected, atol=1e-5)
