"""`fit` is exact: the same weights and metrics on replicas, in parts, and computed by hand."""

import functools

import keras
import numpy as np
import pytest
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

from tf_transformer.fast.optimizers import Adam
from tf_transformer.models.classifier import Classifier
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.metrics import Perplexity, TokenAccuracy, TokenCount
from tf_transformer.models.token_model import TokenModel
from tf_transformer.models.transformer import Transformer
from tf_transformer.run.checkpoints import restore_state, save_state

_INSIDE = {"attention_dropout": 0.5, "activation_dropout": 0.5}


def recomputing() -> Transformer:
    model = transformer(dropout=0.5, **_INSIDE)
    model.encoder.recompute = model.decoder.recompute = True
    return model


DROPOUTS = pytest.mark.parametrize(
    "make",
    [
        functools.partial(guesser, dropout=0.5),
        functools.partial(transformer, **_INSIDE),
        recomputing,
    ],
    ids=["outputs", "inside", "recomputed"],
)

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


def test_a_classifier_on_two_replicas_and_in_parts_equals_one_on_one_replica():
    """Labels are [B]; in one of the batches a replica has none."""

    def classifier() -> Classifier:
        keras.utils.set_random_seed(1)
        return Classifier(16, 3, num_layers=1, d_model=8, d_ff=16, num_heads=2, dropout=0.0)

    data = [
        ({"source": inputs["source"]}, 1 + labels[:, 0] % 3 * (labels[:, 0] > 0))
        for inputs, labels in batches()
    ]

    def trained(replicas: int, part: int | None):
        return fitted(
            replicas,
            data,
            classifier,
            loss=LabelSmoothedCrossEntropy(0.1, first_label=1),
            metrics=[Perplexity(first_label=1), TokenAccuracy(first_label=1), TokenCount()],
            max_tokens_per_device=part,
            validated=True,
        )

    (one, logs), (two, logs_of_two) = trained(1, None), trained(2, 8)
    assert distance(one, two) < 2e-5  # Adam divides by small gradients
    assert logs_of_two == pytest.approx(logs, rel=1e-5)
    assert logs["tokens"] == sum(len(labels) for _, labels in data)


def test_the_reported_loss_and_perplexity_are_means_over_all_tokens():
    """Keras's cross-entropy checks those of a model that does not change."""
    model, logs = fitted(2, optimizer=lambda: keras.optimizers.SGD(0.0), validated=True)
    total = tokens = 0.0
    for inputs, labels in batches():
        losses = keras.losses.sparse_categorical_crossentropy(
            labels, model(inputs), from_logits=True
        )
        total += float(np.sum(losses * (labels != 0)))
        tokens += np.count_nonzero(labels)
    assert logs["perplexity"] == pytest.approx(np.exp(total / tokens), rel=1e-5)
    assert logs["val_perplexity"] == pytest.approx(logs["perplexity"], rel=1e-6)
    assert logs["val_loss"] == pytest.approx(logs["loss"], rel=1e-6)


def test_a_plain_keras_model_is_not_exact_on_two_replicas():
    """The reason for `TokenModel`: the same layers and loss in a plain keras.Model."""
    even = batches((4, 4, 8, 4, 8, 4))  # Keras cannot start with uneven rows
    plain = functools.partial(guesser, keras.Model)
    one, _ = fitted(1, even, plain)
    two, _ = fitted(2, even, plain)
    ours, _ = fitted(2, even)
    assert distance(one, two) > 1e-2
    assert distance(one, ours) < TOLERANCE


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


@DROPOUTS
def test_replicas_have_different_dropout_masks(make):
    """Both have the same row: with the same mask they would have the same logits."""
    inputs, labels = batch(1, 2)
    twice = {name: np.repeat(ids, 2, 0) for name, ids in inputs.items()}, labels.repeat(2, 0)
    model, _ = fitted(2, [twice], make)
    strategy = model.distribute_strategy
    logits = strategy.run(lambda: model(inputs, training=True))
    first, second = strategy.experimental_local_results(logits)
    assert np.abs(first - second).max() > 1e-2


@DROPOUTS
@pytest.mark.parametrize("replicas", [1, 2])
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
def test_the_step_is_not_retraced_for_other_shapes_or_calls_of_fit(replicas):
    with strategy_of(replicas).scope():
        model = guesser(CountingModel)
        model.compile(Adam(0.01), LOSS, metrics=metrics(), max_tokens_per_device=8)
    model.fit(dataset(batches()[:1]), shuffle=False, verbose=0)
    warm = model.traces
    assert replicas <= warm <= 2 * replicas  # Keras itself traces twice on one device
    for _ in range(3):
        model.fit(dataset(batches()), shuffle=False, verbose=0)
    assert model.traces == warm


def test_xla_gives_the_same_weights():
    data = [batch(4, 0), batch(3, 1)] * 2
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
