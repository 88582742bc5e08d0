"""Dropout: its rate, its independence, its gradient, and the shapes it takes."""

import itertools

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tf_transformer.fast.dropout import Dropout, hashed_bits


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


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_hashed_masks_keep_the_rate_and_are_independent(rate):
    """Of seeds, neighbours and distant values; `benchmarks/dropout_masks.py` tries more."""
    bits = tf.function(lambda seed: hashed_bits((512, 512), seed), jit_compile=True)
    seeds = [0, 2**32, 2**33 + 1, -1, -(2**62), 2**62 + 5]
    masks = []
    for seed in seeds:
        kept = bits(tf.constant(seed, tf.int64)).numpy() >= np.uint32(rate * 2**32)
        masks.append((kept - (1 - rate)) / np.sqrt(rate * (1 - rate)))
    deviates = [mask.sum() for mask in masks]
    deviates += [(a * b).sum() for a, b in itertools.combinations(masks, 2)]
    for mask in masks:
        deviates += [(mask[:, k:] * mask[:, :-k]).sum() for k in (1, 2, 256)]
        deviates += [(mask[k:] * mask[:-k]).sum() for k in (1, 2, 256)]
    assert max(map(abs, deviates)) / 512 < 4  # 57 standard normal deviates


def test_hashed_bits_are_the_same_with_and_without_xla():
    seed = tf.constant(-(2**40) + 5, tf.int64)
    compiled = tf.function(lambda seed: hashed_bits((3, 2, 5), seed), jit_compile=True)(seed)
    np.testing.assert_array_equal(hashed_bits((3, 2, 5), seed), compiled)


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
