"""Models are made from settings or a config, and keep their configuration when cloned."""

import dataclasses
import inspect

import keras
import numpy as np
import pytest

from tf_transformer.config import ModelConfig
from tf_transformer.errors import UserError
from tf_transformer.fast.optimizers import Adam
from tf_transformer.models.classifier import Classifier
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.metrics import Perplexity
from tf_transformer.models.transformer import Transformer

IDS = np.array([[5, 6, 3, 0], [7, 3, 0, 0]], "int32")
SIZES = {"vocab_size": 20, "num_layers": 2, "d_model": 8, "d_ff": 16, "num_heads": 2}
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


# --- Settings as arguments ---------------------------------------------------------------


@pytest.mark.parametrize("cls", [Transformer, Classifier])
def test_every_setting_is_an_argument_with_its_default_and_its_help(cls):
    parameters = inspect.signature(cls).parameters
    assert list(parameters)[-3:] == ["dtype", "name", "trainable"]
    for field in dataclasses.fields(ModelConfig):
        if field.name in cls.unused:
            assert field.name not in parameters
            continue
        assert f"{field.name}: {field.metadata['help']}" in cls.__doc__
        if field.name != "vocab_size":
            assert parameters[field.name].default == field.default
    with pytest.raises(TypeError, match="vocab_size"):
        cls(num_classes=2)


def test_arguments_by_name_or_position_and_a_config_make_the_same_model():
    config = ModelConfig(**SIZES | LEARNED)
    assert Transformer(**SIZES, **LEARNED).config == Transformer(config).config == config
    assert Transformer(*SIZES.values(), **LEARNED).config == config
    assert Transformer(config=config).config == config
    assert Transformer(config, vocab_size=9).config == dataclasses.replace(config, vocab_size=9)
    for model in (Classifier(config, 3), Classifier(config=config, num_classes=3)):
        assert model.config == config and model.extra == {"num_classes": 3}
    with pytest.raises(UserError, match="`model.d_model` must be even. Received: 7."):
        Transformer(**SIZES | {"d_model": 7, "num_heads": 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'width'"):
        Transformer(**SIZES, width=7)


def test_a_classifier_warns_of_the_settings_of_a_decoder_that_it_ignores(caplog):
    config = ModelConfig(**SIZES | UNTIED | {"decoder_layers": 1})
    model = Classifier(config, num_classes=3, name="mine")
    assert caplog.messages == [
        f"model.{name} has no effect: a classifier has no decoder" for name in Classifier.unused
    ]
    Classifier.from_config(model.get_config())
    assert len(caplog.messages) == len(Classifier.unused)
    assert model.name == "mine" and model.config.key_dim == 3
    assert not {*Classifier.unused} & {*model.get_config()}
    assert model.get_config()["num_classes"] == 3


# --- Frozen layers -----------------------------------------------------------------------


def freeze(model: keras.Model) -> None:
    """Freezes the embedding and all of the encoder but the feed-forward of its last layer."""
    model.get_layer("embedding").trainable = False
    model.encoder.trainable = False
    model.encoder.layers[-1].feed_forward.trainable = True


def trained_paths(model: keras.Model) -> list[str]:
    return [weight.path for weight in model.trainable_variables]


@pytest.mark.parametrize("kind", ["tied", "classifier"])
@pytest.mark.filterwarnings("error:Skipping variable loading")
def test_frozen_layers_and_the_optimizer_state_survive_saving_and_cloning(kind, tmp_path):
    model = make(kind)
    freeze(model)
    model.compile(Adam(0.01), LabelSmoothedCrossEntropy(first_label=model.first_label))
    model.fit(*data_of(model), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert not again.encoder.trainable and again.encoder.layers[-1].feed_forward.trainable
    assert 0 < len(trained_paths(model)) < len(model.weights)
    for copy in (again, keras.models.clone_model(model)):
        assert trained_paths(copy) == trained_paths(model)
    assert again.optimizer.iterations == 1
    one, other = model.optimizer.variables, again.optimizer.variables
    for variable, loaded in zip(one, other, strict=True):
        np.testing.assert_array_equal(variable, loaded)


def test_a_frozen_model_is_loaded_frozen(tmp_path):
    model = make("tied")
    model.trainable = False
    model.decoder.trainable = True
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert not again.trainable_variables and again.decoder.trainable
    assert not any(weight.trainable for weight in again.encoder.weights)


# --- Clones ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tied", "untied", "classifier"])
def test_a_clone_has_the_same_class_and_config_but_its_own_weights(kind):
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


def test_saving_and_cloning_keep_recomputation_and_the_limits_of_positions(tmp_path):
    model = make("untied")
    model.encoder.recompute, model.position_limits = True, (7, 8)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for copy in (again, keras.models.clone_model(model)):
        assert (copy.encoder.recompute, copy.decoder.recompute) == (True, False)
        assert copy.position_limits == (7, 8) and copy.longest_target == 8


@pytest.mark.parametrize("kind", ["untied", "classifier"])
def test_a_clone_of_a_compiled_model_has_the_same_train_step(kind):
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
    logs = [m.evaluate(*data_of(m), verbose=0) for m in (clone, model)]
    assert logs[0] == logs[1]
    assert clone.train_step.__func__ is model.train_step.__func__
    history = clone.fit(*data_of(clone), verbose=0).history
    assert {*history} == {"loss", "perplexity"}
    assert np.any(clone.weights[0] != model.weights[0])  # the original is unchanged


def test_a_clone_function_that_changes_layers_changes_the_config():
    def without_dropout(layer):
        config = layer.get_config()
        return type(layer).from_config(
            config | ({"dropout": 0.0} if "dropout" in config else {})
        )

    model = make("tied")
    clone = keras.models.clone_model(model, clone_function=without_dropout)
    assert clone.config == dataclasses.replace(model.config, dropout=0.0)


def test_a_clone_without_an_equivalent_config_is_refused():
    def change_the_encoder(layer):
        changes = {"num_heads": 4} if layer.name == "encoder" else {}
        return type(layer).from_config(layer.get_config() | changes)

    with pytest.raises(ValueError, match="must have the same arguments"):
        keras.models.clone_model(make("tied"), clone_function=change_the_encoder)
