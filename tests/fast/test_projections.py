"""Every fast operation equals its plain twin."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.fast.projections import (
    outer_shape,
    project_to_heads,
    project_to_qkv_heads,
    side_by_side,
    transpose,
)

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
