"""Arguments of `compile` and `fit` that would be ignored or misread are refused."""

import keras
import pytest
from replicas import LOSS, batch, guesser

from tf_transformer.fast.optimizers import Adam
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


def test_reducing_the_learning_rate_of_a_schedule_is_refused_at_once():
    callback = keras.callbacks.ReduceLROnPlateau("loss")
    with pytest.raises(ValueError, match="compile with a number as the learning rate"):
        scheduled = compiled(Adam(TransformerSchedule(d_model=8, warmup_steps=100)))
        scheduled.fit(*BATCH, callbacks=[callback], verbose=0)
    compiled().fit(*BATCH, callbacks=[callback], verbose=0)
