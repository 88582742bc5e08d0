"""Logits of a few rows at a time against all at once: loss, metrics, gradients."""

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
    transformer,
)

from tf_transformer.fast.optimizers import Adam, LossScaleOptimizer
from tf_transformer.models import sums
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.run.checkpoints import restore_state, save_state

UNTIED = {"tie_embeddings": False, "norm_first": True}
BIASED = {"output_bias": True, "positions": "learned", "max_length": 12}


@pytest.fixture(autouse=True)
def few_rows(monkeypatch):
    """Makes chunks of a few rows, the last one filled up."""
    monkeypatch.setattr(sums, "LOGIT_ROWS", 7)


class GradientRecorder(keras.optimizers.SGD):
    """Records the gradients instead of applying them."""

    def apply_gradients(self, grads_and_vars):
        gradients, _ = zip(*grads_and_vars, strict=True)
        self.recorded = [np.array(tf.convert_to_tensor(gradient)) for gradient in gradients]


def gradients(model: keras.Model, data, loss=LOSS, **compiled):
    """The gradients, loss and metrics of a step, and the metrics of `test_on_batch`."""
    model.compile(GradientRecorder(), loss, metrics=metrics(), run_eagerly=True, **compiled)
    logs = model.train_on_batch(*data, return_dict=True)
    valid = model.test_on_batch(*data, return_dict=True)
    return model.optimizer.recorded, logs | {f"valid_{name}": valid[name] for name in valid}


@pytest.mark.parametrize(
    ("options", "smoothing"), [({}, 0.3), (UNTIED, 0.0), (BIASED, 0.0), (UNTIED | BIASED, 0.3)]
)
def test_loss_metrics_and_gradients_equal_those_of_all_logits_at_once(options, smoothing):
    inputs, labels = batch(5, 2)
    weights = np.random.default_rng(0).uniform(0, 2, labels.shape).astype("float32")
    data = (inputs, labels, weights)
    loss = LabelSmoothedCrossEntropy(smoothing)
    expected, logs = gradients(transformer(**options), data, loss)
    for scatter in (True, False):
        loss = LabelSmoothedCrossEntropy(smoothing, scatter=scatter)
        ours, own_logs = gradients(transformer(**options), data, loss, chunked_loss=True)
        assert own_logs == pytest.approx(logs, rel=1e-6)
        for one, other in zip(ours, expected, strict=True):
            np.testing.assert_allclose(one, other, atol=1e-6)
        assert max(np.abs(gradient).max() for gradient in ours) > 0.1


@pytest.fixture(scope="module")
def by_hand() -> keras.Model:
    """Six steps of Keras's Adam on the gradient of the mean over the tokens of a batch."""
    return stepped_by_hand(transformer(), keras.optimizers.Adam(0.01), batches())


@pytest.mark.parametrize(("replicas", "part"), [(1, None), (2, 8)])
def test_weights_do_not_depend_on_chunks_replicas_or_parts(by_hand, replicas, part):
    """The tests of TokenModel do the same with all logits at once."""
    model, logs = fitted(
        replicas, make=transformer, max_tokens_per_device=part, chunked_loss=True
    )
    assert distance(model, by_hand) < 2e-5  # Adam divides by small gradients
    assert distance(model, transformer()) > 1e-2
    assert logs["tokens"] == sum(np.count_nonzero(labels) for _, labels in batches())


@pytest.mark.parametrize(
    "later",
    [
        {"positions": "relative", "attention_window": 2, "activation": "swiglu", "norm": "rms"},
        {"positions": "rotary", "attention_window": 2, "activation": "geglu"},
    ],
    ids=lambda later: later["positions"],
)
def test_later_choices_survive_resuming_files_and_clones(later, tmp_path):
    make = functools.partial(transformer, **later)
    optimizer = functools.partial(Adam, 0.01, name="adam")
    data = batches()
    whole, _ = fitted(data=data[:2], make=make, optimizer=optimizer)
    save_state(tmp_path / "a.npz", whole, {})
    resumed = make()
    resumed.compile(optimizer(), LOSS, metrics=metrics())
    resumed.optimizer.build(resumed.trainable_variables)
    restore_state(tmp_path / "a.npz", resumed)
    whole.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    clone = keras.models.clone_model(make())
    clone.set_weights(whole.get_weights())
    np.testing.assert_array_equal(clone(data[2][0]), whole(data[2][0]))
    for model in (whole, resumed, loaded):
        model.fit(dataset(data[2:4]), shuffle=False, verbose=0)
    assert distance(whole, resumed) == distance(whole, loaded) == 0


def test_frozen_embeddings_have_no_gradient():
    def frozen() -> keras.Model:
        model = transformer()
        model.target_embedding.trainable = False
        return model

    data = batch(5, 2)
    expected, _ = gradients(frozen(), data)
    ours, _ = gradients(frozen(), data, chunked_loss=True)
    assert len(ours) == len(expected) == len(transformer().trainable_variables) - 1
    for one, other in zip(ours, expected, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


def test_a_scaled_loss_gives_the_same_update():
    def scaled() -> keras.optimizers.Optimizer:
        return LossScaleOptimizer(keras.optimizers.SGD(0.1), initial_scale=2.0**10)

    model, _ = fitted(make=transformer, optimizer=scaled, chunked_loss=True)
    expected = stepped_by_hand(transformer(), keras.optimizers.SGD(0.1), batches())
    assert distance(model, expected) < 2e-6
    assert distance(model, transformer()) > 1e-2


@pytest.mark.parametrize(
    ("make", "loss", "expected"),
    [
        (guesser, LOSS, "Received: Dense as its last layer"),
        (transformer, "mse", "require the loss LabelSmoothedCrossEntropy"),
    ],
)
def test_other_models_and_losses_are_refused_and_not_compiled(make, loss, expected):
    model = make()
    with pytest.raises(ValueError, match=expected):
        model.compile("adam", loss, chunked_loss=True)
    assert not model.compiled
