"""R-Drop: the loss of two passes and their divergence, wherever it is computed."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import (
    LOSS,
    SMOOTHING,
    VOCAB_SIZE,
    batches,
    distance,
    fitted,
    token_inputs,
    transformer,
)

from tf_transformer.layers.embedding import OutputProjection
from tf_transformer.models import sums
from tf_transformer.models.token_model import TokenModel

ALPHA = 3.0


@keras.saving.register_keras_serializable(package="test_r_drop")
class Second(keras.layers.Layer):
    """Stands for dropout: multiplies the second half of the rows in training."""

    def call(self, inputs, training=False):
        if not training:
            return inputs
        rows = tf.shape(inputs)[0]
        return tf.where((tf.range(rows) < rows // 2)[:, None, None], inputs, 1.5 * inputs)


def two_faced() -> TokenModel:
    keras.utils.set_random_seed(1)
    inputs = token_inputs()
    embedding = keras.layers.Embedding(VOCAB_SIZE, 8, name="embedding")
    hidden = keras.layers.Add()([embedding(ids) for ids in inputs.values()])
    hidden = keras.layers.Dense(8, "relu", name="hidden")(Second()(hidden))
    return TokenModel(inputs, OutputProjection(VOCAB_SIZE, name="logits")(hidden))


def by_hand() -> keras.Model:
    """The definition, with logarithms of probabilities and Keras's optimizer."""
    model, optimizer = two_faced(), keras.optimizers.Adam(0.01)
    for inputs, labels in batches():
        weights = (labels != 0).astype("float32")
        targets = (1 - SMOOTHING) * np.eye(VOCAB_SIZE)[labels] + SMOOTHING / VOCAB_SIZE
        twice = {name: np.concatenate([ids, ids]) for name, ids in inputs.items()}
        with tf.GradientTape() as tape:
            p, q = tf.split(tf.nn.log_softmax(model(twice, training=True)), 2)
            likelihood = tf.reduce_sum(targets.astype("float32") * (p + q), -1) / 2
            one = tf.reduce_sum(tf.exp(p) * (p - q), -1)
            other = tf.reduce_sum(tf.exp(q) * (q - p), -1)
            losses = -likelihood + ALPHA / 2 * (one + other) / 2
            loss = tf.reduce_sum(losses * weights) / weights.sum()
        gradients = tape.gradient(loss, model.trainable_variables)
        dense = [tf.convert_to_tensor(gradient) for gradient in gradients]
        optimizer.apply(dense, model.trainable_variables)
    return model


@pytest.fixture(scope="module")
def expected() -> keras.Model:
    return by_hand()


@pytest.mark.parametrize(
    ("replicas", "options"),
    [
        (1, {}),
        (2, {"max_tokens_per_device": 16}),
        (1, {"chunked_loss": True}),
        (2, {"chunked_loss": True, "max_tokens_per_device": 16}),
    ],
)
def test_weights_are_those_of_the_definition(expected, replicas, options, monkeypatch):
    monkeypatch.setattr(sums, "LOGIT_ROWS", 7)  # three tokens at a time
    model, logs = fitted(replicas, make=two_faced, r_drop=ALPHA, **options)
    assert distance(model, expected) < 1e-5
    assert distance(model, fitted(make=two_faced)[0]) > 1e-3
    assert logs["tokens"] == sum(np.count_nonzero(labels) for _, labels in batches())


def test_without_dropout_it_changes_nothing():
    plain, logs = fitted(make=transformer, chunked_loss=True)
    ours, own = fitted(make=transformer, chunked_loss=True, r_drop=ALPHA)
    assert distance(plain, ours) < 2e-5
    assert own == pytest.approx(logs, rel=1e-5)


def test_a_saved_model_keeps_it(tmp_path):
    model, _ = fitted(make=transformer, chunked_loss=True, r_drop=ALPHA)
    model.save(tmp_path / "model.keras")
    assert keras.saving.load_model(tmp_path / "model.keras").r_drop == ALPHA


@pytest.mark.parametrize(
    ("loss", "alpha", "reason"),
    [
        (LOSS, -1.0, "`r_drop` must be at least 0"),
        ("mse", 1.0, "and `r_drop` require the loss"),
    ],
)
def test_what_it_cannot_do_is_refused(loss, alpha, reason):
    with pytest.raises(ValueError, match=reason):
        transformer().compile(loss=loss, r_drop=alpha)
