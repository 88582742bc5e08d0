"""The metrics count real tokens, over all batches since the last reset."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.metrics import Perplexity, TokenAccuracy, TokenCount

METRICS = [Perplexity, TokenAccuracy, TokenCount]
SHAPES = [(1, 3), (4, 7), (2, 5)]  # batches of different sizes


def random_batch(batch: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels [B, T] with padding at random ends, and logits [B, T, 6]."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, 6, [batch, length])
    lengths = rng.integers(1, length + 1, [batch, 1])
    labels[np.arange(length) >= lengths] = 0
    return labels, rng.normal(0, 2, [batch, length, 6]).astype("float32")


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    return [random_batch(*shape, seed) for seed, shape in enumerate(SHAPES)]


def real_tokens(data) -> tuple[np.ndarray, np.ndarray]:
    """All real labels [N] and their logits [N, V]."""
    labels = np.concatenate([labels[labels != 0] for labels, _ in data])
    logits = np.concatenate([logits[labels != 0] for labels, logits in data])
    return labels, logits.astype("float64")


def reference(metric: type, data) -> float:
    labels, logits = real_tokens(data)
    if metric is TokenCount:
        return len(labels)
    if metric is TokenAccuracy:
        return (logits.argmax(-1) == labels).mean()
    probabilities = np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)
    return np.exp(-np.log(probabilities[np.arange(len(labels)), labels]).mean())


def updated(metric: type, data):
    result = metric()
    for labels, logits in data:
        result.update_state(labels, logits)
    return result


@pytest.mark.parametrize("metric", METRICS)
def test_a_metric_covers_all_real_tokens_of_all_batches(metric):
    result = float(updated(metric, batches()).result())
    assert result == pytest.approx(reference(metric, batches()), rel=1e-5)


def test_perplexity_is_not_the_mean_of_the_batches_perplexities():
    means = np.mean([reference(Perplexity, [batch]) for batch in batches()])
    assert float(updated(Perplexity, batches()).result()) != pytest.approx(means, rel=1e-3)


@pytest.mark.parametrize("metric", METRICS)
def test_padding_does_not_change_a_metric(metric):
    labels, logits = random_batch(4, 7, seed=1)
    padded = np.pad(labels, [(0, 2), (0, 3)]), np.pad(logits, [(0, 2), (0, 3), (0, 0)])
    padded[1][4:] = [9, 0, 0, 0, 0, 0]  # a model that predicts padding
    before = float(updated(metric, [(labels, logits)]).result())
    assert float(updated(metric, [padded]).result()) == pytest.approx(before, rel=1e-6)


@pytest.mark.parametrize("metric", METRICS)
def test_a_reset_metric_forgets_earlier_batches(metric):
    first, *others = batches()
    result = updated(metric, others)
    result.reset_state()
    result.update_state(*first)
    assert float(result.result()) == pytest.approx(reference(metric, [first]), rel=1e-5)


@pytest.mark.parametrize(("metric", "value"), [(Perplexity, 1), (TokenAccuracy, 0)])
def test_a_metric_of_no_tokens_is_finite(metric, value):
    assert float(metric().result()) == value
    labels, logits = np.zeros([2, 3], int), np.zeros([2, 3, 6], "float32")
    assert float(updated(metric, [(labels, logits)]).result()) == value


def test_perplexity_is_finite_for_large_logits():
    labels, logits = np.array([[1, 2]]), np.zeros([1, 2, 6], "float32")
    logits[0, 0, 1] = logits[0, 1, 2] = 1e4
    assert float(updated(Perplexity, [(labels, logits)]).result()) == 1


@pytest.mark.parametrize("metric", METRICS)
def test_bfloat16_logits_are_computed_in_float32(metric):
    labels, logits = random_batch(4, 7, seed=1)
    half = tf.cast(logits, "bfloat16")
    exact = labels, tf.cast(half, "float32").numpy()
    result = float(updated(metric, [(labels, half)]).result())
    assert result == pytest.approx(reference(metric, [exact]), rel=1e-5)


def test_evaluate_reports_metrics_without_smoothing_and_per_token():
    model = keras.Sequential([keras.Input((None, 6)), keras.layers.Activation("linear")])
    model.compile(loss=LabelSmoothedCrossEntropy(0.3), metrics=[metric() for metric in METRICS])
    specs = tf.TensorSpec([None, None, 6]), tf.TensorSpec([None, None], tf.int64)
    data = tf.data.Dataset.from_generator(
        lambda: ((logits, labels) for labels, logits in batches()), output_signature=specs
    )
    data = data.apply(tf.data.experimental.assert_cardinality(len(SHAPES)))
    logs = model.evaluate(data, return_dict=True, verbose=0)
    for metric, name in zip(METRICS, ("perplexity", "accuracy", "tokens"), strict=True):
        assert logs[name] == pytest.approx(reference(metric, batches()), rel=1e-5)
    assert np.exp(logs["loss"]) > 1.1 * logs["perplexity"]


@pytest.mark.parametrize("metric", METRICS)
def test_metric_survives_serialisation(metric):
    again = keras.metrics.deserialize(keras.metrics.serialize(metric(name="mine")))
    assert type(again) is metric
    assert again.name == "mine"


@pytest.mark.parametrize("metric", METRICS)
def test_rows_with_one_label_have_the_metrics_of_as_many_tokens(metric):
    """Only the logits of tokens have a column for label 0."""
    labels, logits = random_batch(1, 7, seed=3)
    logits[..., 0] = -1e9
    rows = metric(first_label=1)
    rows.update_state(labels[0], logits[0, :, 1:])
    tokens = float(updated(metric, [(labels, logits)]).result())
    assert float(rows.result()) == pytest.approx(tokens, rel=1e-5)
    assert metric.from_config(rows.get_config()).first_label == 1


@pytest.mark.parametrize("metric", [Perplexity, TokenAccuracy])
def test_weights_that_sum_to_less_than_one_give_the_same_mean(metric):
    labels, logits = random_batch(4, 5, seed=0)
    small, whole = metric(), metric()
    small.update_state(labels, logits, np.full(4, 1 / 256, "float32"))
    whole.update_state(labels, logits)
    assert float(small.result()) == pytest.approx(float(whole.result()), rel=1e-6)
