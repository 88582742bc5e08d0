"""The classifier: its encoder is the Transformer's, its mean is over real positions only."""

import keras
import numpy as np
import pytest

from tf_transformer.layers import MeanPooling
from tf_transformer.models.classifier import Classifier
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.metrics import TokenAccuracy
from tf_transformer.models.transformer import Transformer

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


def test_fit_learns_with_our_loss_and_with_that_of_keras():
    source = np.random.default_rng(0).integers(4, 20, (32, 6)).astype("int32")
    classes = 1 + (source[:, 0] > 12)
    for loss, labels in (
        (LabelSmoothedCrossEntropy(0.1, first_label=1), classes),
        (keras.losses.SparseCategoricalCrossentropy(from_logits=True), classes - 1),
    ):
        model = make_model(norm_first=True, num_layers=1)
        model.compile(keras.optimizers.Adam(3e-3), loss)
        logs = model.fit({"source": source}, labels, epochs=30, verbose=0, shuffle=False)
        assert logs.history["loss"][-1] < 0.75 * logs.history["loss"][0]
        assert (logits_of(model, source).argmax(1) == classes - 1).mean() > 0.8


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
