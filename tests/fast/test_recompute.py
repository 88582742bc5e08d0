"""Layers recomputed in the backward pass equal those that store what they compute."""

from functools import partial

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import batches, distance, fitted, transformer

from tf_transformer.config import Config, TrainingConfig
from tf_transformer.layers import Decoder, Encoder
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.training.trainer import compile_model

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


@pytest.mark.parametrize(
    ("kind", "inputs", "options"),
    [
        (Encoder, 1, {}),
        (Decoder, 2, INSIDE),
        (lambda **options: Decoder(cross_attention=False, **options), 1, {}),
    ],
    ids=["encoder", "decoder", "decoder alone"],
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
        model.encoder.recompute = recompute
        return model

    data, loss = batches((4, 1)), LabelSmoothedCrossEntropy()
    options = {"loss": loss, "metrics": [], "max_tokens_per_device": 8}

    plain, again = (
        fitted(2, data, partial(make, recompute), **options)[0] for recompute in (False, True)
    )
    assert distance(plain, make(False)) > 1e-3
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
