"""Arguments of `compile` and `fit` that would be ignored or misread are refused."""

import logging
from collections.abc import Mapping
from typing import Any

import keras

from tf_transformer.models.losses import LabelSmoothedCrossEntropy, TokenMean

logger = logging.getLogger(__name__)


def check_loss(loss, loss_weights, in_parts: bool) -> None:
    """Raises ValueError if an argument of `compile` would have no effect with this loss."""
    ours = isinstance(loss, LabelSmoothedCrossEntropy)
    if ours and loss_weights is not None:
        raise ValueError(
            "`loss_weights` is for several losses; a model with one has sample weights. "
            f"Received: loss_weights={loss_weights!r}."
        )
    if in_parts and not ours:
        raise ValueError(
            "`max_tokens_per_device` and `chunked_loss` require the loss "
            f"LabelSmoothedCrossEntropy. Received: loss={loss!r}."
        )


def check_fit(model: keras.Model, arguments: Mapping[str, Any]) -> None:
    """Raises ValueError if `fit` would ignore, misread or later fail on its arguments."""
    plateau = keras.callbacks.ReduceLROnPlateau
    callbacks = keras.tree.flatten(arguments.get("callbacks") or [])
    if any(isinstance(c, plateau) for c in callbacks) and follows_schedule(model.optimizer):
        raise ValueError(
            "ReduceLROnPlateau cannot change the learning rate of a schedule. Leave it out "
            "(TransformerSchedule decays by itself; EarlyStopping stops at a plateau), or "
            "compile with a number as the learning rate."
        )
    if not isinstance(model.loss, LabelSmoothedCrossEntropy):
        return
    if not model.trainable_variables:
        raise ValueError(
            "There is nothing to train: all weights are frozen. Set `trainable = True` on some "
            "layers, and on the model, before `compile`."
        )
    if model.losses:
        raise ValueError(
            "LabelSmoothedCrossEntropy trains on the labels alone, without regularizers and "
            f"`add_loss`. Received: {len(model.losses)} such losses. Remove them, or compile "
            "keras.Model(model.inputs, model.outputs), which has Keras's own step."
        )
    if arguments.get("class_weight") is not None:
        raise ValueError(
            "`class_weight` is for one label per row. Give the tokens' weights as sample "
            f"weights [B, T]. Received: class_weight={arguments['class_weight']!r}."
        )


def follows_schedule(optimizer: keras.optimizers.Optimizer) -> bool:
    """Tells whether the learning rate is a schedule."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return isinstance(inner.get_config()["learning_rate"], dict)


def warn_of_padding(metrics) -> None:
    """Warns of metrics that would count the padding at the end of the last part or chunk."""
    plain = [m for m in keras.tree.flatten(metrics) if not isinstance(m, TokenMean)]
    if metrics and plain:
        names = ", ".join(getattr(m, "name", str(m)) for m in plain)
        logger.warning(
            "these metrics count padding, of which there is more with `max_tokens_per_device` "
            "or `chunked_loss`: %s; give them as `weighted_metrics`",
            names,
        )
