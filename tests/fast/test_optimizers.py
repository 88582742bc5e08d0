"""Our Adam equals Keras's; clipping and loss scaling consider the whole global batch."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import batch, batches, distance, fitted, guesser, stepped_by_hand, token_inputs

from tf_transformer.fast.optimizers import Adam, LossScaleOptimizer, averaged_weights, step_of
from tf_transformer.models.token_model import TokenModel


def gradients(step: int) -> list[tf.Tensor | tf.IndexedSlices]:
    """Gradients of a matrix, and of an embedding with some rows used twice, others never."""
    rng = np.random.default_rng(step)
    matrix, rows = (rng.normal(size=shape).astype("float32") for shape in ([5, 3], [6, 4]))
    indices = rng.integers(0, 9, [6])
    return [tf.constant(matrix), tf.IndexedSlices(rows, indices, tf.constant([9, 4]))]


@pytest.mark.parametrize("clipping", [{}, {"global_clipnorm": 2.0}], ids=["free", "clipped"])
def test_adam_equals_that_of_keras(clipping):
    """Keras receives summed slices, as it would square the slices of a row separately."""
    settings = {"learning_rate": 0.01, "beta_2": 0.98, "epsilon": 1e-9} | clipping
    optimizers = Adam(**settings), keras.optimizers.Adam(**settings)
    ours, theirs = (
        [keras.Variable(np.ones([5, 3])), keras.Variable(np.ones([9, 4]))] for _ in range(2)
    )
    for step in range(20):
        optimizers[0].apply(gradients(step), ours)
        optimizers[1].apply([tf.convert_to_tensor(g) for g in gradients(step)], theirs)
        for one, other in zip(ours, theirs, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6, rtol=0)
    assert np.abs(ours[1] - 1).max() > 0.03


def test_gradients_are_clipped_by_the_norm_of_the_global_batch():
    clipped = functools.partial(Adam, 0.01, global_clipnorm=0.05)
    expected = stepped_by_hand(
        guesser(), keras.optimizers.Adam(0.01, global_clipnorm=0.05), batches()
    )
    for compiled in ({}, {"max_tokens_per_device": 8}, {"replicas": 2}):
        model, _ = fitted(optimizer=clipped, **compiled)
        assert distance(model, expected) < 3e-6, compiled
    free, _ = fitted()
    assert distance(free, expected) > 1e-4  # there was something to clip


def half_precision() -> TokenModel:
    """A model whose logits overflow float16 only for token 15, whose embedding is huge."""
    keras.utils.set_random_seed(1)
    ids = token_inputs()
    embedding = keras.layers.Embedding(16, 8, dtype="mixed_float16", name="embedding")
    hidden = keras.layers.Add()([embedding(side) for side in ids.values()])
    logits = keras.layers.Dense(16, dtype="mixed_float16")(hidden)
    model = TokenModel(ids, keras.layers.Activation("linear", dtype="float32")(logits))
    model.dtype_policy = keras.DTypePolicy("mixed_float16")
    table = embedding.embeddings.numpy()
    table[15] = 60_000
    embedding.embeddings.assign(table)
    return model


@pytest.mark.parametrize("replicas", [1, 2])
def test_an_overflow_on_one_replica_skips_the_update_on_all(replicas):
    inputs, labels = batch(2, 0)
    inputs = {name: ids % 15 for name, ids in inputs.items()}
    inputs["source"][1] = inputs["target"][1] = 15  # the second row, on replica 1
    model, _ = fitted(replicas, [(inputs, labels)], half_precision)
    assert type(model.optimizer) is LossScaleOptimizer
    assert step_of(model.optimizer) == 0
    assert float(model.optimizer.dynamic_scale.numpy()) == 2.0**14  # Keras starts with 2^15
    for variable, before in zip(
        model.trainable_variables, half_precision().trainable_variables, strict=True
    ):
        copies = model.distribute_strategy.experimental_local_results(variable.value)
        assert len(copies) == replicas
        for copy in copies:
            np.testing.assert_array_equal(copy, before)


def test_without_an_overflow_half_precision_updates_all_replicas_equally():
    inputs, labels = batch(2, 0)
    inputs = {name: ids % 15 for name, ids in inputs.items()}
    model, _ = fitted(2, [(inputs, labels % 15)], half_precision)
    assert step_of(model.optimizer) == 1
    assert distance(model, half_precision()) > 1e-3
    for variable in model.trainable_variables:
        first, second = model.distribute_strategy.experimental_local_results(variable.value)
        np.testing.assert_array_equal(first, second)


class Recorder(keras.callbacks.Callback):
    """Keeps the weights after every step."""

    def on_train_begin(self, logs=None):
        self.weights = []

    def on_train_batch_end(self, batch, logs=None):
        self.weights.append(self.model.get_weights())


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_moving_average_is_over_the_weights_after_every_step(replicas):
    """It starts with the weights after step 1, and with a smaller decay."""
    recorder = Recorder()
    optimizer = functools.partial(Adam, 0.01, use_ema=True, ema_momentum=0.22)
    model, _ = fitted(replicas, optimizer=optimizer, callbacks=[recorder])
    expected = recorder.weights[0]
    for update, weights in enumerate(recorder.weights[1:], start=1):
        decay = min(0.22, (1 + update) / (10 + update))
        pairs = zip(expected, weights, strict=True)
        expected = [decay * average + (1 - decay) * weight for average, weight in pairs]
    with averaged_weights(model):
        for average, by_hand in zip(model.get_weights(), expected, strict=True):
            np.testing.assert_allclose(average, by_hand, atol=1e-6)
    for weight, last in zip(model.get_weights(), recorder.weights[-1], strict=True):
        np.testing.assert_array_equal(weight, last)


def test_amsgrad_is_refused():
    with pytest.raises(ValueError, match="no `amsgrad`"):
        Adam(amsgrad=True)
