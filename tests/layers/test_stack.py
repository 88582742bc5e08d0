"""What encoder and decoder share: their dropout, and the documentation of their arguments."""

import inspect

import keras
import numpy as np
import pytest
from contract import hidden_states

from tf_transformer.layers import (
    AddAndNorm,
    Decoder,
    DecoderLayer,
    Encoder,
    EncoderLayer,
    FeedForward,
)

X = hidden_states(2, 5, 8)
LAYER = {"num_heads": 2, "d_ff": 16}


@pytest.mark.parametrize("cls", [Encoder, EncoderLayer, Decoder, DecoderLayer])
def test_every_argument_is_annotated_and_documented(cls):
    parameters = dict(inspect.signature(cls).parameters)
    assert "kwargs" in parameters
    for parameter in parameters.values():
        assert f"    {'**' * (parameter.name == 'kwargs')}{parameter.name}: " in cls.__doc__
        assert parameter.annotation is not parameter.empty or parameter.name == "kwargs"
    assert "{" not in cls.__doc__


@pytest.mark.parametrize("cls", [Encoder, EncoderLayer, Decoder, DecoderLayer])
def test_the_config_holds_every_argument(cls):
    layer = cls(**{"num_layers": 1} if "Layer" not in cls.__name__ else {}, **LAYER)
    names = {*inspect.signature(cls).parameters} - {"kwargs"}
    assert {*layer.get_config()} == names | {"name", "trainable", "dtype"}


def test_a_frozen_stack_stays_frozen_in_a_functional_model(tmp_path):
    encoder = Encoder(2, **LAYER)
    inputs = keras.Input(X.shape[1:])
    model = keras.Model(inputs, keras.layers.Dense(3, name="head")(encoder(inputs)))
    encoder.trainable = False
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for copy in (again, keras.models.clone_model(model)):
        assert [w.path for w in copy.trainable_weights] == ["head/kernel", "head/bias"]
        assert len(copy.weights) == len(model.weights)


@pytest.mark.parametrize("layer", [FeedForward(16), AddAndNorm()])
def test_a_frozen_layer_alone_stays_frozen(layer):
    layer.trainable = False
    again = type(layer).from_config(layer.get_config())
    again.build(X.shape)
    assert again.weights and not any(weight.trainable for weight in again.weights)


@pytest.mark.parametrize(("cls", "memory"), [(Encoder, []), (Decoder, [X])])
def test_a_stack_drops_out_its_embedded_input(cls, memory):
    stack = cls(num_layers=0, **LAYER, dropout=0.5)
    ones = np.ones((1, 50, 8), "float32")
    assert set(np.unique(stack(ones, *memory, training=True))) == {0.0, 2.0}
    np.testing.assert_array_equal(stack(ones, *memory, training=False), ones)


@pytest.mark.parametrize(("cls", "memory"), [(EncoderLayer, []), (DecoderLayer, [X])])
def test_a_layer_drops_out_the_output_of_every_sublayer(cls, memory):
    keras.utils.set_random_seed(1)
    layer = cls(**LAYER, dropout=0.9999, norm_first=True)
    np.testing.assert_array_equal(layer(X, *memory, training=True), X)  # only residuals


@pytest.mark.parametrize(
    ("name", "sublayer", "other"),
    [
        ("attention_dropout", "self_attention", "feed_forward"),
        ("activation_dropout", "feed_forward", "self_attention"),
    ],
)
def test_dropout_inside_a_sublayer_has_its_own_rate(name, sublayer, other):
    keras.utils.set_random_seed(1)
    layer = EncoderLayer(**LAYER, norm_first=True, **{name: 0.9999})
    layer.build(X.shape)
    outputs = layer(X, training=True)
    silent = getattr(layer, sublayer)
    assert silent.get_config()["dropout"] == 0.9999
    assert getattr(layer, other).get_config()["dropout"] == 0
    silent.set_weights([np.zeros_like(weight) for weight in silent.get_weights()])
    np.testing.assert_allclose(layer(X), outputs, atol=1e-6)
