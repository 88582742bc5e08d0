"""The classifier; then the settings and files that it shares with the Transformer."""

import dataclasses
import inspect

import keras
import numpy as np
import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.config import ModelConfig
from tf_transformer.fast.optimizers import Adam
from tf_transformer.layers import MeanPooling
from tf_transformer.models.classifier import Classifier
from tf_transformer.models.losses import LabelSmoothedCrossEntropy, TokenAccuracy
from tf_transformer.models.transformer import Transformer, arguments_of

SIZES = {"num_layers": 2, "d_model": 16, "d_ff": 32, "num_heads": 2}
SOURCE = np.array([[5, 6, 7, 8, 3], [9, 10, 3, 0, 0]], "int32")
POLICIES = ["float32", "mixed_bfloat16", "mixed_float16"]


def make_model(**arguments) -> Classifier:
    keras.utils.set_random_seed(1)
    return Classifier(20, 3, **(SIZES | {"dropout": 0.0} | arguments))


def logits_of(model: Classifier, source) -> np.ndarray:
    return np.asarray(model({"source": np.array(source)}, training=False))


@pytest.mark.parametrize(
    "variant", [{}, {"norm_first": True}, {"positions": "learned", "max_length": 12}]
)
def test_padding_and_other_sentences_do_not_change_the_logits(variant):
    model = make_model(**variant)
    alone, longer = SOURCE[1:, :3], np.pad(SOURCE[1:], ((0, 0), (0, 4)))
    expected = logits_of(model, SOURCE)[1:]
    assert np.abs(expected).max() > 0.01
    for source in (alone, longer):
        np.testing.assert_allclose(logits_of(model, source), expected, atol=1e-6)


@pytest.mark.parametrize("policy", POLICIES)
def test_logits_are_float32_and_finite_even_for_padding_alone(policy):
    logits = make_model(dtype=policy)({"source": np.array([[5, 3, 0], [0, 0, 0]], "int32")})
    assert logits.dtype == "float32" and np.isfinite(logits).all()
    assert getattr(logits, "_keras_mask", None) is None


def test_the_logits_project_the_mean_of_the_encoders_output():
    model, transformer = make_model(), Transformer(20, **SIZES, dropout=0.0)
    ours = {weight.path: weight for weight in model.weights}
    for weight in transformer.weights:
        if weight.path.startswith(("embedding/", "encoder/")):
            weight.assign(ours.pop(weight.path))
    assert sorted(ours) == ["classes/bias", "classes/kernel"]
    encoded = np.asarray(transformer.encode(SOURCE))
    means = np.stack([row[ids != 0].mean(0) for row, ids in zip(encoded, SOURCE, strict=True)])
    kernel, bias = (ours[f"classes/{name}"].numpy() for name in ("kernel", "bias"))
    np.testing.assert_allclose(logits_of(model, SOURCE), means @ kernel + bias, atol=1e-5)


def test_the_mean_is_over_real_positions_and_zero_without_any():
    inputs = np.array([[[1.0], [3.0], [8.0]], [[1.0], [2.0], [3.0]]])
    mask = np.array([[True, True, False], [False, False, False]])
    pooled = np.asarray(MeanPooling()(inputs, mask=mask))
    np.testing.assert_allclose(pooled, [[2.0], [0.0]])
    np.testing.assert_allclose(MeanPooling()(inputs), [[4.0], [2.0]])


def test_a_mean_in_bfloat16_is_computed_in_float32():
    """A sum in bfloat16 would stop at 256, where adding 1 changes nothing."""
    inputs = keras.ops.ones((1, 4000, 1), "bfloat16")
    mask = np.ones((1, 4000), bool)
    assert float(MeanPooling()(inputs, mask=mask)[0, 0]) == 1.0


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16"])
def test_a_reloaded_model_keeps_its_policy_and_its_logits(tmp_path, policy):
    model = make_model(dtype=policy, norm_first=True)
    model.save(tmp_path / "m.keras")
    loaded = keras.saving.load_model(tmp_path / "m.keras")
    assert loaded.dtype_policy.name == policy
    np.testing.assert_array_equal(logits_of(loaded, SOURCE), logits_of(model, SOURCE))


def test_labels_can_be_a_column():
    inputs, labels, logs = {"source": SOURCE}, np.array([1, 3]), []
    for given in (labels, labels[:, None]):
        model = make_model()
        loss, accuracy = LabelSmoothedCrossEntropy(first_label=1), TokenAccuracy(first_label=1)
        model.compile("sgd", loss, metrics=[accuracy])
        model.fit(inputs, given, verbose=0)
        logs.append(model.evaluate(inputs, given, verbose=0))
    assert logs[0] == logs[1]
    model = make_model()
    model.compile("sgd", loss)
    with pytest.raises(ValueError, match="labels of rank 1"):
        model.fit(inputs, np.eye(3)[labels - 1], verbose=0)


def test_a_single_class_is_refused():
    with pytest.raises(ValueError, match="`num_classes` must be at least 2. Received: 1."):
        Classifier(20, 1, **SIZES)


# --- What both models share ---------------------------------------------------------------

IDS = np.array([[5, 6, 3, 0], [7, 3, 0, 0]], "int32")
SETTINGS = {"vocab_size": 20, "num_layers": 2, "d_model": 8, "d_ff": 16, "num_heads": 2}
LEARNED = {"positions": "learned", "max_length": 9}
UNTIED = {"tie_embeddings": False, "output_bias": True, "key_dim": 3, "value_dim": 5}


def make(kind: str) -> keras.Model:
    if kind == "classifier":
        return Classifier(**SETTINGS, num_classes=3, **LEARNED)
    options = {"tied": {}, "untied": LEARNED | UNTIED | {"dtype": "mixed_bfloat16"}}
    return Transformer(**SETTINGS, **options[kind], name="mine")


def data_of(model: keras.Model) -> tuple[dict, np.ndarray]:
    if isinstance(model, Classifier):
        return {"source": IDS}, np.array([2, 3])
    return {"source": IDS, "target": IDS}, IDS


def copied(model: keras.Model) -> keras.Model:
    return type(model).from_config(model.get_config())


# --- Settings as arguments ---------------------------------------------------------------


@pytest.mark.parametrize("cls", [Classifier])
def test_every_setting_is_an_argument_with_its_default_and_its_help(cls):
    parameters, text = inspect.signature(cls).parameters, " ".join(cls.__doc__.split())
    assert list(parameters)[-3:] == ["dtype", "name", "trainable"]
    for field in dataclasses.fields(ModelConfig):
        if cls is Classifier and field.metadata.get("of_decoders"):
            assert field.name not in parameters
            continue
        assert f"{field.name}: {field.metadata['help']}" in text
        if field.name != "vocab_size":
            assert parameters[field.name].default == field.default
    with pytest.raises(TypeError, match="vocab_size"):
        cls(**{"num_classes": 2} if cls is Classifier else {})


def test_the_arguments_make_a_config_that_checks_them():
    config = ModelConfig(**SETTINGS | LEARNED)
    assert Transformer(**SETTINGS, **LEARNED).config == config
    classifier = Classifier(**arguments_of(Classifier, config), num_classes=3)
    assert classifier.config == config and classifier.num_classes == 3
    with pytest.raises(UserError, match="`d_model` must be even. Received: 7."):
        Transformer(**SETTINGS | {"d_model": 7, "num_heads": 1})
    with pytest.raises(TypeError, match="unexpected keyword argument 'width'"):
        Transformer(**SETTINGS, width=7)


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
def test_frozen_layers_and_the_optimizer_state_survive_saving_and_copying(kind, tmp_path):
    model = make(kind)
    freeze(model)
    model.compile(Adam(0.01), LabelSmoothedCrossEntropy(first_label=model.first_label))
    model.fit(*data_of(model), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    assert not again.encoder.trainable and again.encoder.layers[-1].feed_forward.trainable
    assert 0 < len(trained_paths(model)) < len(model.weights)
    for copy in (again, copied(model)):
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


# --- Copies ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["tied", "untied", "classifier"])
def test_a_copy_by_its_config_has_the_same_class_and_config_but_its_own_weights(kind):
    model = make(kind)
    copy = copied(model)
    assert type(copy) is type(model)
    assert copy.get_config() == model.get_config()
    assert [w.path for w in copy.weights] == [w.path for w in model.weights]
    assert np.any(copy.weights[0] != model.weights[0])
    copy.set_weights(model.get_weights())
    inputs, _ = data_of(model)
    np.testing.assert_array_equal(copy(inputs), model(inputs))
    if kind != "classifier":
        np.testing.assert_array_equal(copy.encode(IDS), model.encode(IDS))


def test_saving_and_copying_keep_recomputation_and_the_limits_of_positions(tmp_path):
    model = Transformer(**SETTINGS, **LEARNED, source_positions=7, target_positions=8)
    model.encoder.recompute = True
    model.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    for copy in (again, copied(model)):
        assert (copy.encoder.recompute, copy.decoder.recompute) == (True, False)
        assert (copy.longest_source, copy.longest_target) == (7, 8)


def test_a_clone_by_keras_is_a_plain_model_with_the_same_layers():
    model = make("tied")
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    inputs, labels = data_of(model)
    np.testing.assert_array_equal(clone(inputs), model(inputs))
    model.compile("sgd", LabelSmoothedCrossEntropy(), metrics=[TokenAccuracy()])
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    scores = (each.evaluate(inputs, labels, verbose=0) for each in (model, clone))
    np.testing.assert_allclose(*scores, rtol=1e-6)
