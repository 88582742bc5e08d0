"""Every fast operation equals its plain twin."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from replicas import batches, distance, fitted, transformer

from tf_transformer.config import Config, TrainingConfig
from tf_transformer.fast.operations import (
    Dropout,
    LayerNormalization,
    outer_shape,
    project_to_heads,
    project_to_qkv_heads,
    side_by_side,
    transpose,
)
from tf_transformer.layers import Decoder, Encoder
from tf_transformer.layers.feed_forward import AddAndNorm
from tf_transformer.training.trainer import compile_model

X = np.arange(2 * 3 * 4 * 5, dtype="float32").reshape(2, 3, 4, 5)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (2, 0, 3, 1)])
def test_transpose_equals_that_of_numpy_in_every_dtype(dtype, axes):
    moved = transpose(tf.cast(X, dtype), axes)
    assert keras.backend.standardize_dtype(moved.dtype) == dtype
    np.testing.assert_array_equal(tf.cast(moved, "float32"), X.transpose(axes))


@pytest.mark.parametrize("axes", [(0, 2, 1, 3), (2, 0, 3, 1)])
def test_the_gradient_of_transpose_is_transposed_back(axes):
    x = tf.constant(X)
    weights = tf.random.normal(X.transpose(axes).shape)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(transpose(x, axes) * weights)
    expected = weights.numpy().transpose(np.argsort(axes))
    np.testing.assert_array_equal(tape.gradient(y, x), expected)


def test_a_saved_transpose_loads_without_a_warning_and_keeps_its_gradient(tmp_path, caplog):
    module = tf.Module()
    module.move = tf.function(
        lambda x: transpose(x, (0, 2, 1, 3)), input_signature=[tf.TensorSpec(X.shape)]
    )
    tf.saved_model.save(module, str(tmp_path))
    caplog.clear()
    loaded = tf.saved_model.load(str(tmp_path))
    assert not caplog.messages
    x = tf.constant(X)
    with tf.GradientTape() as tape:
        tape.watch(x)
        y = tf.reduce_sum(loaded.move(x) ** 2)
    np.testing.assert_array_equal(tape.gradient(y, x), 2 * X)


@pytest.mark.parametrize(
    ("spec", "as_integers"), [([None, 3, 4, 5], True), ([None] * 2 + [4, 5], False)]
)
def test_integers_are_transposed_if_only_the_batch_size_is_unknown(spec, as_integers):
    graph = tf.function(lambda x: transpose(x, (0, 2, 1, 3)))
    concrete = graph.get_concrete_function(tf.TensorSpec(spec))
    assert any(op.type == "Bitcast" for op in concrete.graph.get_operations()) is as_integers
    np.testing.assert_array_equal(concrete(tf.constant(X)), X.transpose(0, 2, 1, 3))


def _shape_operations(spec):
    graph = tf.function(lambda x: tf.reshape(x, (*outer_shape(x), 2, 3)))
    concrete = graph.get_concrete_function(tf.TensorSpec(spec))
    assert concrete(tf.zeros([5, 4, 6])).shape == (5, 4, 2, 3)
    assert concrete(tf.zeros([0, 4, 6])).shape == (0, 4, 2, 3)
    return [op for op in concrete.graph.get_operations() if op.type == "Shape"]


def test_an_unknown_batch_size_alone_costs_no_operation():
    assert not _shape_operations([None, 4, 6])
    assert _shape_operations([None, None, 6])


@pytest.mark.parametrize("value_dim", [3, 4])
@pytest.mark.parametrize("use_bias", [False, True])
def test_one_joint_projection_equals_three_separate_ones(value_dim, use_bias):
    rng, heads, key_dim = np.random.default_rng(1), 2, 3
    widths = [heads * size for size in (key_dim, key_dim, value_dim)]
    x, *kernels = (rng.normal(size=shape) for shape in ((2, 4, 5), *((5, w) for w in widths)))
    biases = [rng.normal(size=width) if use_bias else None for width in widths]
    kernel, bias = side_by_side(kernels, biases, "float64")
    together = project_to_qkv_heads(tf.constant(x), kernel, bias, heads, key_dim)
    for kernel, bias, projected in zip(kernels, biases, together, strict=True):
        alone = project_to_heads(tf.constant(x), kernel, bias, heads)
        np.testing.assert_allclose(projected, alone, atol=1e-12)
        plain = x @ kernel + (0 if bias is None else bias)
        plain = plain.reshape(2, 4, heads, -1).swapaxes(1, 2)
        np.testing.assert_allclose(projected, plain, atol=1e-12)


# --- Layer normalization, against Keras's ------------------------------------------------


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


# --- Dropout: its rate, its independence, its gradient, and the shapes it takes ----------


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_the_rate_is_dropped_and_the_rest_scaled_up(rate):
    inputs = np.ones((400, 50, 64), "float32")
    outputs = ops.convert_to_numpy(Dropout(rate, seed=1)(inputs, training=True))
    kept = outputs != 0
    error = 4 * np.sqrt(rate * (1 - rate) / inputs.size)
    assert abs(1 - rate - kept.mean()) < error
    np.testing.assert_allclose(outputs[kept], 1 / (1 - rate), rtol=2e-5)


def test_both_halves_of_a_word_and_all_positions_are_independent():
    outputs = ops.convert_to_numpy(Dropout(0.5, seed=2)(np.ones((4000, 8)), training=True))
    correlations = np.corrcoef((outputs != 0).T)
    np.testing.assert_array_less(np.abs(correlations - np.eye(8)), 0.08)


def test_every_call_draws_a_new_mask_determined_by_the_seed():
    inputs = np.ones((8, 32), "float32")
    first, second = Dropout(0.5, seed=3), Dropout(0.5, seed=3)
    drawn = [ops.convert_to_numpy(first(inputs, training=True)) for _ in range(2)]
    again = [ops.convert_to_numpy(second(inputs, training=True)) for _ in range(2)]
    np.testing.assert_array_equal(drawn, again)
    assert (drawn[0] != drawn[1]).any()


def test_the_gradient_has_the_mask_of_the_values():
    inputs = tf.constant(np.random.default_rng(0).normal(size=(6, 10)), tf.float32)
    layer = Dropout(0.4, seed=4)
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = layer(inputs, training=True)
    np.testing.assert_allclose(tape.gradient(outputs, inputs), outputs / inputs, rtol=1e-6)


@pytest.mark.parametrize("shape", [(30, 7), (20, 5, 6), (20, 3, 1)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_any_width_and_dtype_is_accepted(shape, dtype):
    layer = Dropout(0.5, dtype=dtype, seed=5)
    outputs = layer(ops.ones(shape, dtype), training=True)
    assert outputs.shape == shape and keras.backend.standardize_dtype(outputs.dtype) == dtype
    assert set(np.unique(ops.convert_to_numpy(ops.cast(outputs, "float32")))) == {0.0, 2.0}


@pytest.mark.parametrize(("rate", "training"), [(0.5, False), (0.0, True)])
def test_nothing_is_dropped_in_inference_or_at_rate_0(rate, training):
    inputs = np.random.default_rng(0).normal(size=(3, 8)).astype("float32")
    np.testing.assert_array_equal(Dropout(rate)(inputs, training=training), inputs)


@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize(("width", "known"), [(6, 6), (7, 7), (7, None)])
def test_shapes_may_be_unknown_in_a_graph(width, known, jit_compile):
    layer = Dropout(0.5, seed=6)
    graph = tf.function(
        lambda inputs: layer(inputs, training=True),
        [tf.TensorSpec([None, None, known])],
        autograph=False,
        jit_compile=jit_compile,
    )
    for shape in (9, 4, width), (2, 30, width), (0, 3, width):
        outputs = graph(tf.ones(shape)).numpy()
        assert outputs.shape == shape
        assert set(np.unique(outputs)) == ({0.0, 2.0} if outputs.size else set())


@pytest.mark.parametrize("arguments", [{"rate": 1.0}, {"rate": 0.5, "noise_shape": (1, 4)}])
def test_unsupported_arguments_are_refused(arguments):
    with pytest.raises(ValueError, match="Received"):
        Dropout(**arguments)


# --- Layers recomputed in the backward pass, against those that store --------------------

SIZES = {"num_layers": 2, "num_heads": 2, "d_ff": 16, "dropout": 0.3}
INSIDE = {"attention_dropout": 0.2, "activation_dropout": 0.2, "norm_first": True}
VECTORS = np.random.default_rng(0).normal(size=(3, 5, 8)).astype("float32")


def outputs_and_gradients(make, *inputs, recompute: bool):
    """Outputs, and gradients of inputs and weights, of two steps: dropout draws twice."""
    keras.utils.set_random_seed(1)
    stack = make()
    stack.build(*(array.shape for array in inputs))
    stack.recompute = recompute
    tensors = [tf.constant(array) for array in inputs]

    @tf.function(autograph=False)
    def step():
        with tf.GradientTape() as tape:
            tape.watch(tensors)
            outputs = stack(*tensors, training=True)
        sources = [*tensors, *(variable.value for variable in stack.trainable_variables)]
        return outputs, *tape.gradient(outputs, sources)

    return [np.array(tensor) for _ in range(2) for tensor in step()]


@pytest.mark.parametrize("options", [{}, INSIDE])
@pytest.mark.parametrize(
    ("kind", "inputs"),
    [(Encoder, 1), (Decoder, 2), (lambda **o: Decoder(cross_attention=False, **o), 1)],
)
def test_outputs_and_gradients_are_the_same(kind, inputs, options, caplog):
    def make():
        return kind(**SIZES, **options)

    plain, again = (
        outputs_and_gradients(make, *[VECTORS] * inputs, recompute=flag)
        for flag in (False, True)
    )
    assert len(plain) == len(again) > 20
    for one, other in zip(plain, again, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=3e-6)  # other fused operations
    assert np.abs(plain[0] - plain[len(plain) // 2]).max() > 0.1  # other masks
    assert not [line for line in caplog.messages if "watched tensor" in line]


def test_fit_gives_the_same_weights_on_two_replicas_and_in_parts():
    def make(recompute: bool):
        model = transformer(dropout=0.3)
        model.encoder.recompute = model.decoder.recompute = recompute
        return model

    data, options = batches((4, 1)), {"max_tokens_per_device": 8, "chunked_loss": True}
    plain, _ = fitted(2, data, partial(make, False), **options)
    again, _ = fitted(2, data, partial(make, True), **options)
    assert distance(plain, again) < 2e-5  # Adam divides by small gradients


def test_layers_are_called_again_for_the_gradients_and_only_then():
    encoder = Encoder(num_layers=2, num_heads=2, d_ff=24)
    encoder.build(VECTORS.shape)
    encoder.recompute = True
    calls = []
    inner = encoder.layers[0].feed_forward.inner
    call = inner.call
    inner.call = lambda *inputs, **options: calls.append(1) or call(*inputs, **options)
    with tf.GradientTape() as tape:
        outputs = encoder(tf.constant(VECTORS), training=True)
    assert calls == [1]
    tape.gradient(outputs, [encoder.trainable_variables[0].value])
    assert calls == [1, 1]
    encoder(tf.constant(VECTORS), training=False)
    assert calls == [1, 1, 1]


def test_the_setting_reaches_encoder_and_decoder():
    model = transformer()
    for recompute in (True, False):
        compile_model(model, Config(training=TrainingConfig(recompute=recompute)))
        assert model.encoder.recompute is model.decoder.recompute is recompute
