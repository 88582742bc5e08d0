"""Loss, metrics and learning rate against their formulas."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.models.losses import (
    LabelSmoothedCrossEntropy,
    Perplexity,
    TokenAccuracy,
    TokenCount,
    TransformerSchedule,
)

EPSILONS = [0.0, 0.1, 0.3]


def random_batch(batch=3, length=5, vocab_size=7, scale=3.0) -> tuple[np.ndarray, np.ndarray]:
    """Labels [B, T], the last row shorter and with padding, and float32 logits [B, T, V]."""
    rng = np.random.default_rng(0)
    labels = rng.integers(1, vocab_size, [batch, length])
    labels[-1, 2:] = 0
    logits = rng.normal(0, scale, [batch, length, vocab_size]).astype("float32")
    return labels, logits


def smooth_targets(labels, vocab_size: int, epsilon: float) -> np.ndarray:
    """(1 - e) on the label and e spread over all tokens: [B, T, V]."""
    return (1 - epsilon) * np.eye(vocab_size)[labels] + epsilon / vocab_size


def log_softmax(logits) -> np.ndarray:
    shifted = logits.astype("float64") - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def reference_loss(labels, logits, epsilon: float, weights=None) -> float:
    """The weighted mean over tokens, in float64."""
    targets = smooth_targets(labels, logits.shape[-1], epsilon)
    losses = -(targets * log_softmax(logits)).sum(-1)
    weights = (labels != 0) * (1.0 if weights is None else weights)
    return (losses * weights).sum() / weights.sum()


def reference_gradient(labels, logits, epsilon: float, weights=None) -> np.ndarray:
    targets = smooth_targets(labels, logits.shape[-1], epsilon)
    weights = (labels != 0) * (1.0 if weights is None else weights)
    scale = (weights / weights.sum())[..., None]
    return (np.exp(log_softmax(logits)) - targets) * scale


def loss_and_gradient(labels, logits, epsilon: float, weights=None):
    logits = tf.Variable(logits)
    with tf.GradientTape() as tape:
        loss = LabelSmoothedCrossEntropy(epsilon)(labels, logits, weights)
    return loss, tape.gradient(loss, logits)


def test_the_gradient_without_scatter_is_bitwise_equal():
    labels, logits = random_batch()

    def gradient_function(scatter: bool):
        loss = LabelSmoothedCrossEntropy(0.1, scatter=scatter)
        loss = LabelSmoothedCrossEntropy.from_config(loss.get_config())

        @tf.function(autograph=False)
        def gradient(logits):
            return tf.gradients(loss(labels, logits), logits)[0]

        return gradient.get_concrete_function(tf.TensorSpec(logits.shape))

    with_scatter, without = (gradient_function(scatter) for scatter in (True, False))
    np.testing.assert_array_equal(without(logits), with_scatter(logits))
    operations = [{op.type for op in f.graph.get_operations()} for f in (with_scatter, without)]
    scatters = [{name for name in names if "Scatter" in name} for names in operations]
    assert scatters == [{"TensorScatterUpdate"}, set()]


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("weights", [None, np.random.default_rng(2).uniform(0, 2, (3, 5))])
def test_loss_and_gradient_are_weighted_means_over_smoothed_one_hot_targets(epsilon, weights):
    labels, logits = random_batch()
    loss, gradient = loss_and_gradient(labels, logits, epsilon, weights)
    expected = reference_loss(labels, logits, epsilon, weights)
    assert loss.numpy() == pytest.approx(expected, rel=1e-6)
    expected = reference_gradient(labels, logits, epsilon, weights)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_a_batch_of_only_padding_has_zero_loss_and_gradient(epsilon):
    _, logits = random_batch()
    loss, gradient = loss_and_gradient(np.zeros([3, 5], int), logits, epsilon)
    assert loss.numpy() == 0
    np.testing.assert_array_equal(gradient, 0)


def test_the_weight_of_a_sentence_applies_to_all_of_its_tokens():
    labels, logits = random_batch(batch=5, length=5)
    loss, weights = LabelSmoothedCrossEntropy(0.1), np.array([0.0, 1.0, 2.0, 0.5, 3.0])
    assert loss(labels, logits, weights) == loss(labels, logits, np.tile(weights, (5, 1)).T)


@pytest.mark.parametrize("epsilon", EPSILONS)
def test_large_logits_stay_finite_and_exact(epsilon):
    labels, _ = random_batch()
    signs = np.random.default_rng(3).choice([-1.0, 1.0], [3, 5, 7])
    logits = (1e4 * signs).astype("float32")
    loss, gradient = loss_and_gradient(labels, logits, epsilon)
    assert loss.numpy() == pytest.approx(reference_loss(labels, logits, epsilon), rel=1e-5)
    expected = reference_gradient(labels, logits, epsilon)
    np.testing.assert_allclose(gradient, expected, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("epsilon", EPSILONS)
@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_logits_are_computed_in_float32(dtype, epsilon):
    labels, logits = random_batch()
    rounded = tf.cast(logits, dtype)
    loss, gradient = loss_and_gradient(labels, rounded, epsilon)
    exact = loss_and_gradient(labels, tf.cast(rounded, "float32"), epsilon)
    assert loss.dtype == tf.float32 and gradient.dtype == rounded.dtype
    assert loss.numpy() == exact[0].numpy()
    np.testing.assert_array_equal(gradient, tf.cast(exact[1], dtype))


@pytest.mark.parametrize("dtype", ["int32", "int64", "float32"])
def test_labels_can_have_any_dtype_that_keras_casts_them_to(dtype):
    labels, logits = random_batch()
    loss = LabelSmoothedCrossEntropy(0.1)(tf.cast(labels, dtype), logits)
    assert loss.numpy() == pytest.approx(reference_loss(labels, logits, 0.1), rel=1e-6)


def test_neither_pass_makes_a_one_hot_tensor():
    @tf.function
    def both(labels, logits):
        loss = LabelSmoothedCrossEntropy(0.1)(labels, logits)
        return loss, tf.gradients(loss, logits)

    specs = tf.TensorSpec([None, None], tf.int32), tf.TensorSpec([None, None, 7], tf.float32)
    graph = both.get_concrete_function(*specs).graph.as_graph_def()
    nodes = [*graph.node, *(node for f in graph.library.function for node in f.node_def)]
    kinds = {node.op for node in nodes}
    assert "OneHot" not in kinds
    assert "Softmax" in kinds  # the nodes were found


@pytest.mark.parametrize("compiled", [False, True])
def test_keras_reports_and_minimises_this_loss(compiled):
    labels, logits = random_batch()
    model = keras.Sequential([keras.Input((None, 7)), keras.layers.Dense(7)])
    model.layers[0].set_weights([np.eye(7), np.zeros(7)])
    model.compile(
        keras.optimizers.SGD(1.0), LabelSmoothedCrossEntropy(0.1), run_eagerly=not compiled
    )
    assert model.train_on_batch(logits, labels) == pytest.approx(
        reference_loss(labels, logits, 0.1), rel=1e-6
    )
    gradient = reference_gradient(labels, logits, 0.1)
    np.testing.assert_allclose(model.layers[0].bias, -gradient.sum((0, 1)), atol=1e-6)


def test_a_keras_mask_on_the_logits_changes_nothing():
    labels, logits = random_batch()
    logits[0, :2] = 0
    masking = keras.Sequential([keras.Input((None, 7)), keras.layers.Masking(0.0)])
    masking.compile(loss=LabelSmoothedCrossEntropy(0.1))
    expected = reference_loss(labels, logits, 0.1)
    assert masking.test_on_batch(logits, labels) == pytest.approx(expected, rel=1e-6)


def test_loss_survives_serialisation():
    loss = LabelSmoothedCrossEntropy(0.3, name="smoothed")
    again = keras.losses.deserialize(keras.losses.serialize(loss))
    assert type(again) is LabelSmoothedCrossEntropy
    assert again.get_config() == loss.get_config()
    assert again.label_smoothing == 0.3


@pytest.mark.parametrize("kind", [LabelSmoothedCrossEntropy, Perplexity])
def test_what_1_1_0_serialised_is_read(kind):
    """It had a first label, for models of classes."""
    config = kind().get_config()
    assert kind.from_config(config | {"first_label": 0}).get_config() == config


@pytest.mark.parametrize("label", [-100, 7])
def test_a_label_without_a_column_gives_nan_and_affects_no_other_row(label):
    labels, logits = random_batch()
    wrong = labels.copy()
    wrong[1, 2] = label
    loss = LabelSmoothedCrossEntropy()
    logits = tf.Variable(logits)
    gradients = []
    for some_labels in (labels, wrong):
        with tf.GradientTape() as tape:
            value = loss(some_labels, logits)
        gradients.append(tape.gradient(value, logits).numpy())
    assert np.isnan(value)
    others = np.ones_like(labels, bool)
    others[1, 2] = False
    np.testing.assert_array_equal(*(gradient[others] for gradient in gradients))


@pytest.mark.parametrize("label_smoothing", [10, 1, -0.1])
def test_smoothing_outside_its_range_is_refused(label_smoothing):
    with pytest.raises(ValueError, match=rf"must be in \[0, 1\). Received: {label_smoothing}"):
        LabelSmoothedCrossEntropy(label_smoothing)


def test_another_reduction_is_refused():
    with pytest.raises(ValueError, match="leave out `reduction`. Received: reduction='none'"):
        LabelSmoothedCrossEntropy(reduction="none")


def test_labels_can_be_a_column_but_have_no_other_rank():
    labels, logits = random_batch()
    loss = LabelSmoothedCrossEntropy(0.1)
    weights = np.ones_like(labels, "float32")
    assert loss(labels[..., None], logits) == loss(labels, logits)
    assert loss(labels[..., None], logits, weights) == loss(labels, logits)
    for wrong in (labels[0], np.eye(7)[labels]):
        with pytest.raises(ValueError, match=r"labels of rank 2. Received: labels \("):
            loss(wrong, logits)


def test_losses_of_replicas_add_up_to_the_loss_as_keras_expects():
    labels, logits = random_batch()
    loss = LabelSmoothedCrossEntropy()
    strategy = tf.distribute.MirroredStrategy(["CPU:0", "CPU:1"])
    both = strategy.run(lambda: loss(tf.constant(labels), tf.constant(logits)))
    total = strategy.reduce("SUM", both, axis=None)
    np.testing.assert_allclose(total, loss(labels, logits), rtol=1e-6)


# --- Metrics -----------------------------------------------------------------------------

METRICS = [Perplexity, TokenAccuracy, TokenCount]
SHAPES = [(1, 3), (4, 7), (2, 5)]  # batches of different sizes


def ragged_batch(batch: int, length: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Labels [B, T] with padding at random ends, and logits [B, T, 6]."""
    rng = np.random.default_rng(seed)
    labels = rng.integers(1, 6, [batch, length])
    lengths = rng.integers(1, length + 1, [batch, 1])
    labels[np.arange(length) >= lengths] = 0
    return labels, rng.normal(0, 2, [batch, length, 6]).astype("float32")


def batches() -> list[tuple[np.ndarray, np.ndarray]]:
    return [ragged_batch(*shape, seed) for seed, shape in enumerate(SHAPES)]


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


@pytest.mark.parametrize(("metric", "value"), [(Perplexity, 1), (TokenAccuracy, 0)])
def test_a_metric_of_no_tokens_is_finite(metric, value):
    assert float(metric().result()) == value
    labels, logits = np.zeros([2, 3], int), np.zeros([2, 3, 6], "float32")
    assert float(updated(metric, [(labels, logits)]).result()) == value


@pytest.mark.parametrize("metric", METRICS)
def test_bfloat16_logits_are_computed_in_float32(metric):
    labels, logits = ragged_batch(4, 7, seed=1)
    half = tf.cast(logits, "bfloat16")
    exact = labels, tf.cast(half, "float32").numpy()
    result = float(updated(metric, [(labels, half)]).result())
    assert result == pytest.approx(reference(metric, [exact]), rel=1e-5)


@pytest.mark.parametrize("metric", [Perplexity, TokenAccuracy])
def test_weights_that_sum_to_less_than_one_give_the_same_mean(metric):
    labels, logits = ragged_batch(4, 5, seed=0)
    small, whole = metric(), metric()
    small.update_state(labels, logits, np.full(4, 1 / 256, "float32"))
    whole.update_state(labels, logits)
    assert float(small.result()) == pytest.approx(float(whole.result()), rel=1e-6)


# --- The learning rate -------------------------------------------------------------------


def paper_rate(step_num: int, d_model: int, warmup_steps: int) -> float:
    """Equation 3 with the paper's names; steps count from 1."""
    return d_model**-0.5 * min(step_num**-0.5, step_num * warmup_steps**-1.5)


@pytest.mark.parametrize(("d_model", "warmup_steps"), [(512, 4_000), (1024, 4_000), (128, 1)])
@pytest.mark.parametrize("update", [1, 2, 100, 3_999, 4_000, 4_001, 100_000, 300_000])
def test_the_rate_of_an_update_follows_equation_3(d_model, warmup_steps, update):
    schedule = TransformerSchedule(d_model, warmup_steps)
    rate = schedule(np.int64(update - 1))  # Keras calls the first update step 0
    assert float(rate) == pytest.approx(paper_rate(update, d_model, warmup_steps), rel=1e-5)


def test_a_start_skips_steps_and_a_scale_multiplies_the_rate():
    plain, other = (TransformerSchedule(512, 100, *more) for more in ((), (2.5, 70)))
    for step in (0, 29, 30, 5_000):
        assert float(other(step)) == pytest.approx(2.5 * float(plain(step + 70)), rel=1e-6)


def test_the_first_update_of_an_optimizer_has_the_rate_of_step_1():
    optimizer = keras.optimizers.SGD(TransformerSchedule(64, 10))
    weight = keras.Variable(np.zeros(1, "float32"))
    moved = 0.0
    for update in (1, 2, 3):
        assert float(optimizer.learning_rate) == pytest.approx(paper_rate(update, 64, 10))
        optimizer.apply([np.ones(1, "float32")], [weight])
        moved += paper_rate(update, 64, 10)
        assert float(weight[0]) == pytest.approx(-moved, rel=1e-5)


@pytest.mark.parametrize("sizes", [(0, 4_000), (64, 0)])
def test_a_schedule_refuses_sizes_below_1(sizes):
    with pytest.raises(ValueError, match="must be at least 1. Received: 0."):
        TransformerSchedule(*sizes)


def test_schedule_survives_serialisation_inside_an_optimizer():
    optimizer = keras.optimizers.Adam(TransformerSchedule(64, 10, scale=2.0))
    again = keras.optimizers.deserialize(keras.optimizers.serialize(optimizer))
    assert float(again.learning_rate) == float(optimizer.learning_rate)
    config = again.get_config()["learning_rate"]["config"]
    assert config == {"d_model": 64, "warmup_steps": 10, "scale": 2.0, "start": 0}
