"""The fast layer normalization equals Keras's."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.fast.layer_norm import LayerNormalization
from tf_transformer.layers.feed_forward import AddAndNorm


def _outputs_and_gradients(layer, inputs, upstream, **options):
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(inputs, **options)
    return outputs, *tape.gradient(outputs, [inputs, layer.gamma, layer.beta], upstream)


def _pair(dtype):
    """Our layer and Keras's with the same random scale and offset."""
    rng = np.random.default_rng(1)
    weights = [rng.uniform(0.5, 2, 16), rng.normal(size=16)]
    kinds = LayerNormalization, keras.layers.LayerNormalization
    layers = [kind(epsilon=1e-6, dtype=dtype) for kind in kinds]
    for layer in layers:
        layer.build((None, None, 16))
        layer.set_weights(weights)
    return layers


@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-12), ("float32", 2e-5)])
@pytest.mark.parametrize("shape", [(5, 7, 16), (4, 16)])
@pytest.mark.parametrize("training", [True, False])
def test_outputs_and_gradients_equal_those_of_keras(dtype, tolerance, shape, training):
    rng = np.random.default_rng(0)
    inputs = tf.constant(rng.normal(3, 2, shape), dtype)
    upstream = tf.constant(rng.normal(size=shape), dtype)
    own_layer, keras_layer = _pair(dtype)
    ours = _outputs_and_gradients(own_layer, inputs, upstream, training=training)
    theirs = _outputs_and_gradients(keras_layer, inputs, upstream)
    for own, other in zip(ours, theirs, strict=True):
        assert own.dtype == other.dtype
        np.testing.assert_allclose(own, other, rtol=tolerance, atol=tolerance)


def test_half_precision_is_computed_in_float32():
    rng = np.random.default_rng(0)
    inputs = tf.constant(rng.normal(100, 10, (64, 16)), tf.bfloat16)
    layer = LayerNormalization(dtype="mixed_bfloat16")
    outputs = layer(inputs)
    assert outputs.dtype == tf.bfloat16
    exact = tf.cast(inputs, tf.float32).numpy()
    exact = (exact - exact.mean(-1, keepdims=True)) / exact.std(-1, keepdims=True)
    np.testing.assert_allclose(tf.cast(outputs, tf.float32), exact, atol=0.02)


@pytest.mark.parametrize("rows", [0, 2])
def test_equal_values_and_no_rows_have_finite_gradients(rows):
    layer = _pair("float32")[0]
    inputs, ones = tf.fill((rows, 16), 7.0), tf.ones((rows, 16))
    outputs, *gradients = _outputs_and_gradients(layer, inputs, ones, training=True)
    np.testing.assert_allclose(outputs, np.tile(layer.beta.numpy(), (rows, 1)))
    assert all(np.isfinite(gradient).all() for gradient in gradients)


@pytest.mark.parametrize(
    "arguments", [{"axis": 1}, {"center": False}, {"scale": False}, {"rms_scaling": True}]
)
def test_unsupported_norms_are_refused(arguments):
    with pytest.raises(ValueError, match="Received"):
        LayerNormalization(**arguments)


def test_only_training_uses_the_explicit_gradient():
    """The flag reaches a layer inside others; custom gradients slow down SavedModels."""
    layer = AddAndNorm(norm_first=False)
    x = tf.ones((2, 16))
    layer.build(x.shape)
    for training in (True, False):
        graph = tf.function(lambda x, training=training: layer(x, x, training=training))
        operations = graph.get_concrete_function(x).graph.get_operations()
        custom = [op for op in operations if op.type == "IdentityN"]
        assert bool(custom) is training
