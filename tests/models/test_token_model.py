"""`fit` is exact: the same weights and metrics on replicas, in parts, and computed by hand."""

import functools

import keras
import numpy as np
import pytest
import tensorflow as tf
from replicas import (
    LOSS,
    batch,
    batches,
    dataset,
    distance,
    fitted,
    guesser,
    metrics,
    stepped_by_hand,
    strategy_of,
    transformer,
    weighted_batches,
)
from trained import small_model

from tf_transformer.fast.optimizers import Adam
from tf_transformer.models.losses import (
    LabelSmoothedCrossEntropy,
    Perplexity,
    TokenAccuracy,
    TransformerSchedule,
)
from tf_transformer.models.token_model import TokenModel
from tf_transformer.models.transformer import Transformer
from tf_transformer.run.checkpoints import restore_state, save_state

_INSIDE = {"attention_dropout": 0.5, "activation_dropout": 0.5}


def recomputing() -> Transformer:
    model = transformer(dropout=0.5, **_INSIDE)
    model.encoder.recompute = model.decoder.recompute = True
    return model


MAKES = (
    functools.partial(guesser, dropout=0.5),
    functools.partial(transformer, **_INSIDE),
    recomputing,
)
KINDS = ("outputs", "inside", "recomputed")

# A few float32 roundings for weights near 1, after 6 steps of Adam at 0.01.
TOLERANCE = 3e-6


@pytest.fixture(scope="module")
def by_hand() -> keras.Model:
    """Six steps of Keras's Adam on the gradient of the mean over the tokens of a batch."""
    return stepped_by_hand(guesser(), keras.optimizers.Adam(0.01), batches())


@pytest.fixture(scope="module")
def alone() -> tuple[keras.Model, dict[str, float]]:
    """One replica's model and logs."""
    return fitted(validated=True)


@pytest.mark.parametrize(("replicas", "part"), [(1, 8), (2, 8), (4, None)])
def test_weights_and_metrics_do_not_depend_on_replicas_or_parts(by_hand, alone, replicas, part):
    model, logs = fitted(replicas, max_tokens_per_device=part, validated=True)
    assert max(distance(m, by_hand) for m in (model, alone[0])) < TOLERANCE
    assert logs == pytest.approx(alone[1], rel=1e-6)
    tokens = sum(np.count_nonzero(labels) for _, labels in batches())
    assert logs["tokens"] == logs["val_tokens"] == tokens


def test_sample_weights_are_summed_over_all_replicas():
    weighted = weighted_batches()
    expected = stepped_by_hand(guesser(), keras.optimizers.Adam(0.01), weighted)
    for compiled in ({"replicas": 2}, {"max_tokens_per_device": 8}):
        model, _ = fitted(data=weighted, **compiled)
        assert distance(model, expected) < TOLERANCE


def test_a_batch_of_only_padding_changes_no_weight():
    inputs, labels = batch(3, 0)
    empty = {name: 0 * ids for name, ids in inputs.items()}, 0 * labels
    model, logs = fitted(2, [empty])
    assert distance(model, guesser()) == 0
    assert logs["tokens"] == logs["loss"] == 0


@pytest.mark.parametrize("make", MAKES[:2], ids=KINDS[:2])  # test_recompute.py has the third
def test_replicas_have_different_dropout_masks(make):
    """Both have the same row: with the same mask they would have the same logits."""
    inputs, labels = batch(1, 2)
    twice = {name: np.repeat(ids, 2, 0) for name, ids in inputs.items()}, labels.repeat(2, 0)
    model, _ = fitted(2, [twice], make)
    strategy = model.distribute_strategy
    logits = strategy.run(lambda: model(inputs, training=True))
    first, second = strategy.experimental_local_results(logits)
    assert np.abs(first - second).max() > 1e-2


@pytest.mark.parametrize(
    ("make", "replicas"), [(MAKES[0], 2), (MAKES[1], 2), (MAKES[2], 1)], ids=KINDS
)
def test_dropout_continues_unchanged_from_a_saved_state(tmp_path, replicas, make):
    with strategy_of(replicas).scope():
        model = make()
        options = {"chunked_loss": isinstance(model, Transformer)}
        model.compile(Adam(0.01, name="adam"), LOSS, max_tokens_per_device=8, **options)
        model.optimizer.build(model.trainable_variables)
    data = batches()
    model.fit(dataset(data[:3]), shuffle=False, verbose=0)
    save_state(tmp_path / "a.npz", model, {})
    ends = []
    for _ in range(2):
        model.fit(dataset(data[3:]), shuffle=False, verbose=0)
        ends.append(model.get_weights())
        restore_state(tmp_path / "a.npz", model)
    for weight, other in zip(*ends, strict=True):
        np.testing.assert_array_equal(weight, other)


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_gradient_that_is_not_finite_makes_the_loss_nan(replicas):
    """The forward pass is finite, but the derivative of the square root at 0 is not."""

    class Root(keras.layers.Layer):
        def build(self, _):
            self.shift = self.add_weight(shape=(), initializer="zeros")

        def call(self, inputs):
            return inputs + keras.ops.sqrt(self.shift)

    def make() -> TokenModel:
        model = guesser()
        return TokenModel(model.inputs, Root()(model.output))

    _, logs = fitted(replicas, [batch(4, 1)], make, lambda: keras.optimizers.SGD(0.0))
    assert np.isnan(logs["loss"])
    assert np.isfinite(logs["perplexity"])  # from the same forward pass


class CountingModel(TokenModel):
    """Counts how often its step is traced."""

    traces = 0

    def train_step(self, data):
        self.traces += 1
        return super().train_step(data)


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_step_is_traced_once_for_all_shapes_and_calls_of_fit(replicas):
    with strategy_of(replicas).scope():
        model = guesser(CountingModel)
        model.compile(Adam(0.01), LOSS, metrics=metrics(), max_tokens_per_device=8)
    for data in (batches()[:1], batches(), batches()):
        model.fit(dataset(data), shuffle=False, verbose=0)
        assert model.traces == replicas  # Keras alone would trace twice on one device


def test_xla_gives_the_same_weights():
    data = [batch(4, 0)] * 3
    compiled, logs = fitted(1, data, jit_compile=True)
    model, expected = fitted(1, data, jit_compile=False)
    assert compiled.jit_compile and not model.jit_compile
    assert distance(compiled, model) < 1e-5
    assert logs == pytest.approx(expected, rel=1e-5)


def test_another_loss_trains_as_in_keras():
    def settings() -> dict:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        return {"loss": loss, "optimizer": lambda: keras.optimizers.Adam(0.01), "metrics": []}

    model, logs = fitted(**settings())
    plain, expected = fitted(make=functools.partial(guesser, keras.Model), **settings())
    assert distance(model, plain) == 0
    assert logs == expected
    assert distance(model, guesser()) > 1e-2


def test_fit_before_compile_raises_the_same_error_as_in_keras():
    errors = []
    for model in (guesser(), keras.Sequential([keras.layers.Dense(1)])):
        with pytest.raises(ValueError, match="compile") as raised:
            model.fit(dataset(batches()), verbose=0)
        errors.append(str(raised.value))
    assert errors[0] == errors[1]


def test_loss_scaling_can_be_turned_off_in_half_precision():
    model = transformer(dtype="mixed_float16")
    model.compile("adam", LOSS, auto_scale_loss=False)
    assert type(model.optimizer) is keras.optimizers.Adam


# --- Refused arguments -------------------------------------------------------------------

BATCH = batch(3, 2)


@pytest.mark.parametrize(
    ("loss", "options", "reason"),
    [
        (
            "mse",
            {"max_tokens_per_device": 8},
            "`max_tokens_per_device` and `chunked_loss` require the loss",
        ),
        (LOSS, {"loss_weights": 2.0}, "`loss_weights` is for several losses"),
    ],
)
def test_an_argument_that_would_have_no_effect_is_refused(loss, options, reason):
    with pytest.raises(ValueError, match=reason):
        guesser().compile("adam", loss, **options)


def test_the_most_tokens_at_once_are_not_negative_and_0_means_all():
    model = guesser()
    model.compile("adam", LOSS, max_tokens_per_device=0)
    assert model.max_tokens_per_device is None
    with pytest.raises(ValueError, match="at least 1, .* Received: max_tokens_per_device=-8"):
        model.compile("adam", LOSS, max_tokens_per_device=-8)


def test_a_list_with_one_loss_stands_for_that_loss():
    model = guesser()
    model.compile("adam", [LOSS])
    assert model.loss is LOSS


def test_fit_refuses_class_weights_and_regularizers():
    model = guesser()
    model.compile("adam", LOSS)
    with pytest.raises(ValueError, match="Give the tokens' weights as sample weights"):
        model.fit(*BATCH, class_weight={0: 1.0, 1: 2.0}, verbose=0)
    model.trainable_variables[0].regularizer = keras.regularizers.L2(0.1)
    with pytest.raises(ValueError, match="without regularizers.* Received: 1 such losses"):
        model.fit(*BATCH, verbose=0)


def test_fit_refuses_a_model_without_trainable_weights():
    model = guesser()
    model.trainable = False
    model.compile("sgd", LOSS)
    with pytest.raises(ValueError, match="nothing to train: all weights are frozen"):
        model.fit(*BATCH, verbose=0)


def test_fit_refuses_to_train_the_weights_of_an_earlier_fit():
    model = Transformer(20, num_layers=1, d_model=8, d_ff=16, num_heads=2)
    ids = np.array([[5, 6, 3], [7, 3, 0]])
    data = {"source": ids, "target": ids}, ids
    for _ in range(2):
        model.compile(keras.optimizers.SGD(1.0), LOSS)
        model.fit(*data, verbose=0)
        model.fit(*data, verbose=0)
        if model.encoder.layers[0].feed_forward.inner.lora_enabled:
            break
        model.enable_lora(2)
        with pytest.raises(ValueError, match="compile the model after `enable_lora`"):
            model.fit(*data, verbose=0)
    learnt = [weight for weight in model.trainable_weights if weight.name.endswith("_b")]
    assert len(learnt) == 16 and all(map(keras.ops.any, learnt))


def test_predict_and_evaluate_know_adapters_that_came_after_them():
    model = Transformer(20, num_layers=1, d_model=8, d_ff=16, num_heads=2)
    model.compile("sgd", LOSS)
    ids = np.array([[5, 6, 3], [7, 3, 0]])
    data = {"source": ids, "target": ids}

    def check() -> np.ndarray:
        logits = model(data, training=False)
        np.testing.assert_allclose(model.predict(data, verbose=0), logits, atol=1e-5)
        loss = model.evaluate(data, ids, verbose=0)
        np.testing.assert_allclose(loss, LOSS(ids, logits), rtol=1e-4)
        return np.array(logits)

    before = check()
    model.decoder.layers[0].feed_forward.inner.enable_lora(2, b_initializer="ones")
    one = check()
    model.encoder.enable_lora(2, b_initializer="ones")
    assert np.ptp(before - one) > 1e-3 < np.ptp(one - check())


@pytest.mark.parametrize("options", [{}, {"chunked_loss": True}])
@pytest.mark.parametrize("known", [True, False])
def test_labels_of_another_length_than_the_target_are_refused(options, known):
    model = small_model(20)
    model.compile("sgd", LabelSmoothedCrossEntropy(), **options)
    ids, labels = np.full([2, 4], 5, "int32"), np.full([2, 5], 5, "int32")
    batch = ({"source": ids, "target": ids}, labels)
    if known:
        with pytest.raises(ValueError, match=r"need labels of the same rows .*, 5\)"):
            model.fit(*batch, verbose=0)
        return
    any_length = tf.TensorSpec([None, None], tf.int32)
    signature = ({"source": any_length, "target": any_length}, any_length)
    dataset = tf.data.Dataset.from_generator(lambda: [batch], output_signature=signature)
    with pytest.raises(tf.errors.InvalidArgumentError, match="must be as long as the target"):
        model.fit(dataset, verbose=0)


def test_fit_takes_weights_of_rows_and_then_of_tokens():
    weights = np.random.default_rng(0).uniform(0, 2, BATCH[1].shape).astype("float32")
    model, fresh = compiled(), compiled()
    model.fit(*BATCH, sample_weight=weights[:, 0], verbose=0)
    fresh.set_weights(model.get_weights())
    for each in (model, fresh):  # the step of the first has been traced for rows
        each.fit(*BATCH, sample_weight=weights, verbose=0)
        each.fit(*BATCH, sample_weight=weights[..., None], verbose=0)
    for one, other in zip(model.get_weights(), fresh.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_reducing_the_learning_rate_of_a_schedule_is_refused_at_once():
    callback = keras.callbacks.ReduceLROnPlateau("loss")
    model = guesser()
    model.compile(Adam(TransformerSchedule(d_model=8, warmup_steps=100)), LOSS)
    with pytest.raises(ValueError, match="compile with a number as the learning rate"):
        model.fit(*BATCH, callbacks=[callback], verbose=0)
    model.compile("adam", LOSS)
    model.fit(*BATCH, callbacks=[callback], verbose=0)


# --- Metrics: listed once, and weighted only on request ----------------------------------

INPUTS, LABELS = batch(4, 1)
WEIGHTS = np.random.default_rng(0).uniform(0, 2, LABELS.shape).astype("float32")


def requests() -> dict[str, dict]:
    """Ways to request metrics, with new objects."""
    return {
        "none": {},
        "ours": {
            "metrics": [Perplexity(), TokenAccuracy(name="share")],
            "weighted_metrics": [Perplexity(name="mine")],
        },
        "of Keras": {
            "metrics": ["accuracy", keras.metrics.SparseTopKCategoricalAccuracy(3, name="3")],
            "weighted_metrics": ["sparse_categorical_accuracy"],
        },
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


def test_a_loaded_model_has_its_metrics_once(tmp_path):
    model, _ = fitted(weighted_metrics=[Perplexity(name="w")])
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert len(loaded.running_means) == len(model.running_means) == 5
    logs = loaded.evaluate(dataset(batches()), verbose=0)
    assert logs == pytest.approx(model.evaluate(dataset(batches()), verbose=0), rel=1e-6)
    assert len(logs) == 5
    assert loaded.metrics_names == model.metrics_names
