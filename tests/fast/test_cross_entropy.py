"""Cross-entropy and its explicit gradient against TensorFlow's with one-hot targets."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.fast.cross_entropy import smoothed_cross_entropy

RANDOM = np.random.default_rng(0)
LABELS = np.pad(RANDOM.integers(1, 7, [3, 4]), ((0, 0), (0, 1)))  # the last one is padding
LOGITS = tf.constant(RANDOM.normal(0, 3, [3, 5, 7]), "float32")


@pytest.mark.parametrize("epsilon", [0.0, 0.1, 0.3])
def test_loss_and_gradient_equal_those_of_tensorflow(epsilon):
    upstream = tf.constant(RANDOM.normal(size=LABELS.shape), "float32")
    targets = tf.one_hot(LABELS, 7) * (1 - epsilon) + epsilon / 7
    with tf.GradientTape(persistent=True) as tape:
        tape.watch(LOGITS)
        ours = smoothed_cross_entropy(LABELS, LOGITS, epsilon)
        theirs = tf.nn.softmax_cross_entropy_with_logits(targets, LOGITS)
    np.testing.assert_allclose(ours, theirs, rtol=1e-5)
    np.testing.assert_allclose(
        tape.gradient(ours, LOGITS, output_gradients=upstream),
        tape.gradient(theirs, LOGITS, output_gradients=upstream),
        atol=1e-6,
    )
