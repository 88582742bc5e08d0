"""Models that Keras clones stay what they are."""

import dataclasses

import keras
import numpy as np
import pytest

from tf_transformer.fast.optimizers import Adam
from tf_transformer.models.classifier import Classifier
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.metrics import Perplexity
from tf_transformer.models.transformer import Transformer

IDS = np.array([[5, 6, 3, 0], [7, 3, 0, 0]], "int32")
SIZES = {"vocab_size": 20, "num_layers": 2, "d_model": 8, "d_ff": 8, "num_heads": 2}
LEARNED = {"positions": "learned", "max_length": 9}
UNTIED = {"tie_embeddings": False, "output_bias": True, "key_dim": 3, "value_dim": 5}


def make(kind: str) -> keras.Model:
    if kind == "classifier":
        return Classifier(**SIZES, num_classes=3, **LEARNED)
    options = {"tied": {}, "untied": LEARNED | UNTIED | {"dtype": "mixed_bfloat16"}}
    return Transformer(**SIZES, **options[kind], name="mine")


def data_of(model: keras.Model) -> tuple[dict, np.ndarray]:
    if isinstance(model, Classifier):
        return {"source": IDS}, np.array([2, 3])
    return {"source": IDS, "target": IDS}, IDS


@pytest.mark.parametrize("kind", ["tied", "untied", "classifier"])
def test_a_clone_has_the_class_the_config_and_weights_of_its_own(kind):
    model = make(kind)
    clone = keras.models.clone_model(model)
    assert type(clone) is type(model)
    assert clone.get_config() == model.get_config()
    assert [w.path for w in clone.weights] == [w.path for w in model.weights]
    assert np.any(clone.weights[0] != model.weights[0])
    clone.set_weights(model.get_weights())
    inputs, _ = data_of(model)
    np.testing.assert_array_equal(clone(inputs), model(inputs))
    if kind != "classifier":
        np.testing.assert_array_equal(clone.encode(IDS), model.encode(IDS))


@pytest.mark.parametrize("kind", ["untied", "classifier"])
def test_a_clone_of_a_compiled_model_trains_by_the_same_step(kind):
    model = make(kind)
    first = model.first_label
    model.compile(
        Adam(0.01),
        LabelSmoothedCrossEntropy(0.2, first_label=first),
        metrics=[Perplexity(first_label=first)],
        max_tokens_per_device=4,
    )
    clone = keras.models.clone_model(model)
    assert clone.max_tokens_per_device == 4
    clone.set_weights(model.get_weights())
    logs = [one.evaluate(*data_of(one), verbose=0) for one in (clone, model)]
    assert logs[0] == logs[1]
    assert clone.train_step.__func__ is model.train_step.__func__
    history = clone.fit(*data_of(clone), verbose=0).history
    assert {*history} == {"loss", "perplexity"}
    assert np.any(clone.weights[0] != model.weights[0])  # and the model stays as it was


def test_a_clone_function_changes_the_config_with_the_layers():
    def without_dropout(layer):
        config = layer.get_config()
        return type(layer).from_config(
            config | ({"dropout": 0.0} if "dropout" in config else {})
        )

    model = make("tied")
    clone = keras.models.clone_model(model, clone_function=without_dropout)
    assert clone.config == dataclasses.replace(model.config, dropout=0.0)


def test_a_clone_that_no_arguments_describe_is_refused():
    def of_encoder_alone(layer):
        changes = {"num_heads": 4} if layer.name == "encoder" else {}
        return type(layer).from_config(layer.get_config() | changes)

    with pytest.raises(ValueError, match="must have the same arguments"):
        keras.models.clone_model(make("tied"), clone_function=of_encoder_alone)
