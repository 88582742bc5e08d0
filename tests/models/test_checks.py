"""Arguments of `compile` and `fit` that would be ignored or misread are refused."""

import keras
import pytest
from replicas import LOSS, batch, guesser

from tf_transformer.fast.optimizers import Adam
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.metrics import TokenAccuracy, TokenCount
from tf_transformer.models.schedules import TransformerSchedule
from tf_transformer.models.token_model import TokenModel

BATCH = batch(3, 2)


def compiled(optimizer: object = "adam") -> TokenModel:
    model = guesser()
    model.compile(optimizer, LOSS)
    return model


@pytest.mark.parametrize(
    ("loss", "options", "reason"),
    [
        ("mse", {"max_tokens_per_device": 8}, "`max_tokens_per_device` requires the loss"),
        (LOSS, {"loss_weights": 2.0}, "`loss_weights` is for several losses"),
    ],
)
def test_an_argument_that_would_have_no_effect_is_refused(loss, options, reason):
    with pytest.raises(ValueError, match=reason):
        guesser().compile("adam", loss, **options)


@pytest.mark.parametrize("first_label", [0, 1])
def test_another_first_label_than_the_models_is_refused(first_label):
    model = guesser()
    model.first_label = 1 - first_label
    wrong = {"first_label": first_label}
    reason = f"the argument first_label={1 - first_label}. Received: first_label={first_label}"
    with pytest.raises(ValueError, match=f"give LabelSmoothedCrossEntropy {reason}"):
        model.compile("sgd", LabelSmoothedCrossEntropy(**wrong))
    for option in ("metrics", "weighted_metrics"):
        with pytest.raises(ValueError, match=f"give TokenAccuracy {reason}"):
            model.compile("sgd", "mse", **{option: [TokenAccuracy(**wrong)]})
    model.compile("sgd", "mse", metrics=[TokenCount(**wrong)])  # counts any labels


def test_the_most_tokens_at_once_are_not_negative_and_0_means_all():
    model = guesser()
    model.compile("adam", LOSS, max_tokens_per_device=0)
    assert model.max_tokens_per_device is None
    with pytest.raises(ValueError, match="`max_tokens_per_device` must be .* Received: -8"):
        model.compile("adam", LOSS, max_tokens_per_device=-8)


def test_a_list_with_one_loss_stands_for_that_loss():
    model = guesser()
    model.compile("adam", [LOSS])
    assert model.loss is LOSS


def test_fit_refuses_class_weights_and_regularizers():
    model = compiled()
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


def test_reducing_the_learning_rate_of_a_schedule_is_refused_at_once():
    callback = keras.callbacks.ReduceLROnPlateau("loss")
    with pytest.raises(ValueError, match="compile with a number as the learning rate"):
        scheduled = compiled(Adam(TransformerSchedule(d_model=8, warmup_steps=100)))
        scheduled.fit(*BATCH, callbacks=[callback], verbose=0)
    compiled().fit(*BATCH, callbacks=[callback], verbose=0)
