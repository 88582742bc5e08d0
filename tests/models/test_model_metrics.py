"""Metrics in plain Keras: listed once, and weighted only on request."""

import keras
import numpy as np
import pytest
from replicas import LOSS, batch, batches, dataset, fitted, guesser, metrics, weighted_batches

from tf_transformer.models.metrics import Perplexity, TokenAccuracy
from tf_transformer.models.token_model import TokenModel

INPUTS, LABELS = batch(4, 1)
WEIGHTS = np.random.default_rng(0).uniform(0, 2, LABELS.shape).astype("float32")


def requests() -> dict[str, dict]:
    """Ways to request metrics, with new objects."""
    return {
        "none": {},
        "objects": {"metrics": [Perplexity(), TokenAccuracy(name="share")]},
        "strings": {
            "metrics": ["accuracy"],
            "weighted_metrics": ["sparse_categorical_accuracy"],
        },
        "of Keras": {"metrics": [keras.metrics.SparseTopKCategoricalAccuracy(3, name="three")]},
        "weighted": {"metrics": [Perplexity()], "weighted_metrics": [Perplexity(name="mine")]},
    }


def compiled(kind: type[keras.Model] = TokenModel, **options) -> keras.Model:
    model = guesser(kind)
    model.compile(keras.optimizers.SGD(0.1), LOSS, **options)
    return model


def weighted_perplexity(model: keras.Model, data) -> float:
    """exp of the weighted mean of Keras's own cross-entropy."""
    total = weight = 0.0
    for inputs, labels, sample_weight in data:
        losses = keras.losses.sparse_categorical_crossentropy(
            labels, model(inputs), from_logits=True
        )
        weights = np.broadcast_to(sample_weight, labels.shape) * (labels != 0)
        total, weight = total + np.sum(losses * weights), weight + np.sum(weights)
    return float(np.exp(total / weight))


@pytest.mark.parametrize("name", requests())
def test_metrics_are_named_and_computed_as_by_a_plain_keras_model(name):
    """The rows have no padding, because Keras's metrics would count it."""
    labels = np.where(LABELS == 0, 5, LABELS)
    ours, plain = (compiled(kind, **requests()[name]) for kind in (TokenModel, keras.Model))
    options = {"sample_weight": WEIGHTS, "verbose": 0}
    for model in (ours, plain):
        model.evaluate(INPUTS, labels, **options)  # Keras names them at the first batch
    assert ours.metrics_names == plain.metrics_names
    assert len(ours.metrics_variables) == len(plain.metrics_variables)
    for as_dict in (False, True):
        expected = plain.evaluate(INPUTS, labels, return_dict=as_dict, **options)
        logs = ours.evaluate(INPUTS, labels, return_dict=as_dict, **options)
        assert logs == pytest.approx(expected, rel=1e-6)
    histories = [
        model.fit(INPUTS, labels, validation_data=(INPUTS, labels, WEIGHTS), **options).history
        for model in (ours, plain)
    ]
    assert histories[0] == {
        name: pytest.approx(values, rel=1e-6) for name, values in histories[1].items()
    }


def test_evaluate_returns_the_loss_and_every_metric_once():
    model = compiled(metrics=metrics())
    loss, perplexity, accuracy, tokens = model.evaluate(INPUTS, LABELS, verbose=0)
    assert 0 <= accuracy <= 1 < loss < perplexity
    assert tokens == np.count_nonzero(LABELS)


def test_compiling_again_replaces_the_metrics():
    model = compiled(metrics=[Perplexity()], weighted_metrics=["accuracy"])
    model.fit(INPUTS, LABELS, verbose=0)
    model.compile("sgd", LOSS, metrics=[TokenAccuracy(name="share")])
    history = model.fit(INPUTS, LABELS, validation_data=(INPUTS, LABELS), verbose=0).history
    assert {*history} == {"loss", "share", "val_loss", "val_share"}
    assert [mean.name for mean in model.running_means] == ["loss", "share"]
    model.compile("sgd", LOSS)
    assert {*model.fit(INPUTS, LABELS, verbose=0).history} == {"loss"}
    assert np.isscalar(model.evaluate(INPUTS, LABELS, verbose=0))


@pytest.mark.parametrize("weights", [WEIGHTS, WEIGHTS[:, 0]], ids=["of tokens", "of rows"])
def test_only_weighted_metrics_are_weighted(weights):
    model = compiled(metrics=[Perplexity()], weighted_metrics=[Perplexity(name="weighted")])
    logs = model.evaluate(INPUTS, LABELS, sample_weight=weights, verbose=0, return_dict=True)
    columns = weights.reshape(len(LABELS), -1)
    expected = weighted_perplexity(model, [(INPUTS, LABELS, columns)])
    plain = weighted_perplexity(model, [(INPUTS, LABELS, np.ones((1, 1)))])
    assert logs["weighted"] == pytest.approx(expected, rel=1e-6)
    assert logs["perplexity"] == pytest.approx(plain, rel=1e-6)
    assert abs(expected - plain) > 1e-3


def test_weighted_metrics_are_exact_on_replicas_and_in_parts():
    """Keras's metrics are exact too, as padding has weight 0."""
    data = weighted_batches()
    model, logs = fitted(
        2,
        data,
        optimizer=lambda: keras.optimizers.SGD(0.0),
        metrics=[],
        weighted_metrics=[Perplexity(), "sparse_categorical_accuracy"],
        max_tokens_per_device=8,
        validated=True,
    )
    assert logs["perplexity"] == pytest.approx(weighted_perplexity(model, data), rel=1e-5)
    accuracy = keras.metrics.SparseCategoricalAccuracy()
    for inputs, labels, weights in data:
        accuracy.update_state(labels, model(inputs), weights * (labels != 0))
    for name in ("sparse_categorical_accuracy", "val_sparse_categorical_accuracy"):
        assert logs[name] == pytest.approx(float(accuracy.result()), rel=1e-5)


def test_the_warning_names_metrics_that_count_the_padding_of_parts(caplog):
    compiled(metrics=[Perplexity(), "accuracy"])
    compiled(metrics=[Perplexity()], weighted_metrics=["accuracy"], max_tokens_per_device=8)
    assert not caplog.records
    compiled(metrics=[Perplexity(), "accuracy"], max_tokens_per_device=8)
    (line,) = caplog.messages
    assert ": accuracy; give them as `weighted_metrics`" in line


def test_neither_eager_steps_nor_several_per_execution_change_the_logs():
    _, expected = fitted(validated=True)
    for option in ({"run_eagerly": True}, {"steps_per_execution": 3}):
        _, logs = fitted(validated=True, **option)
        assert logs == pytest.approx(expected, rel=1e-6), option


def test_early_stopping_can_use_a_metric_on_the_dev_set():
    model = guesser()
    model.compile(keras.optimizers.SGD(0.0), LOSS, metrics=[Perplexity()])
    stop = keras.callbacks.EarlyStopping("val_perplexity", mode="min", patience=2)
    data = (INPUTS, LABELS)
    history = model.fit(*data, validation_data=data, epochs=9, verbose=0, callbacks=[stop])
    assert len(history.history["val_perplexity"]) == 3


def test_a_loaded_model_has_its_metrics_once(tmp_path):
    model, _ = fitted(weighted_metrics=[Perplexity(name="w")])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.running_means) == len(model.running_means) == 5
    logs = loaded.evaluate(dataset(batches()), verbose=0)
    assert logs == pytest.approx(model.evaluate(dataset(batches()), verbose=0), rel=1e-6)
    assert len(logs) == 5
    assert loaded.metrics_names == model.metrics_names
