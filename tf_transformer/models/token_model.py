"""A Keras model whose `fit` is exact on any number of devices and under accumulation."""

import logging
from collections.abc import Mapping
from functools import partial
from typing import Any

import keras
import tensorflow as tf

from tf_transformer.fast.keras_hooks import KerasModel
from tf_transformer.fast.optimizers import LossScaleOptimizer
from tf_transformer.fast.programs import Programs
from tf_transformer.fast.recompute import by_programs
from tf_transformer.layers.block import Stack
from tf_transformer.models.losses import (
    LabelSmoothedCrossEntropy,
    TokenMean,
    full_precision,
    labels_of,
    token_weights,
)
from tf_transformer.models.sums import (
    ChunkedLoss,
    CompiledLoss,
    ReplicaSeeds,
    sum_over_parts,
    sum_over_replicas,
)

logger = logging.getLogger(__name__)


@keras.saving.register_keras_serializable(package="tf_transformer")
class TokenModel(KerasModel):
    """A model with logits [B, T, V] that is trained on the mean loss over all real tokens.

    If compiled with `LabelSmoothedCrossEntropy`, loss and gradient are sums over the tokens of
    the global batch divided by their number: the same on one device, on several
    (`tf.distribute`), or in parts computed one after another. Keras's own step divides by the
    tokens of each replica; it is used with any other loss.

    Every replica draws its own dropout masks. A gradient that is not finite makes the loss of
    the epoch NaN, so that a callback can stop training; under loss scaling it skips the update.
    """

    max_tokens_per_device: int | None = None
    _replica_seeds = None
    _trained: tuple[int, ...] = ()  # ids of the weights of the last `fit` since `compile`
    _predicted = _tested = _trained  # those of the last `predict`, and `evaluate`
    _chunked_loss: ChunkedLoss | None = None
    programs: Programs | None = None  # if XLA compiles the layers

    # --- Compiling -----------------------------------------------------------------------

    def compile(
        self,
        optimizer="rmsprop",
        loss=None,
        *,
        metrics=None,
        weighted_metrics=None,
        max_tokens_per_device: int | None = None,
        chunked_loss: bool = False,
        jit_compile: bool | str = "auto",
        **kwargs,
    ):
        """Compiles as Keras does; metrics of an earlier `compile` are dropped.

        Metrics of this package count real tokens, whichever list they are in. Others count
        padding too, unless they are in `weighted_metrics`, which receive the sample weights of
        real tokens and 0 for padding.

        Args:
            optimizer: as in Keras.
            loss: as in Keras.
            metrics: as in Keras.
            weighted_metrics: as in Keras.
            max_tokens_per_device: most positions (rows x length) computed at once; a larger
                share of a batch is computed in parts, whose gradients are summed for one
                update. 0 or None for the whole share at once.
            chunked_loss: computes the logits of 512 target positions at a time, on a GPU 4,096,
                with the same result up to rounding: less memory, and a little faster. Metrics
                that count padding then count more of it.
            jit_compile: as in Keras, but with `LabelSmoothedCrossEntropy` XLA compiles one
                program for each kind of layer in training, not the whole step: the stacks of
                `layers`, their embeddings and, with `chunked_loss`, the loss. Results differ
                by rounding and by other dropout masks. "auto" compiles nothing there: this is
                experimental, and has not run on a GPU yet.
            **kwargs: other arguments of Keras's `compile`.

        Raises:
            RuntimeError: if Keras's backend is not TensorFlow.
            ValueError: for a negative `max_tokens_per_device`; for `chunked_loss`, if the model
                does not end in the projection to logits; for it and `max_tokens_per_device`, if
                the loss is not `LabelSmoothedCrossEntropy`; with that loss, for `loss_weights`.
        """
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "Exact training needs the TensorFlow backend: set KERAS_BACKEND=tensorflow, or "
                "compile keras.Model(model.inputs, model.outputs), which has Keras's own step. "
                f"Received: backend {keras.backend.backend()!r}."
            )
        if max_tokens_per_device is not None and max_tokens_per_device < 0:
            raise ValueError(
                "`max_tokens_per_device` must be at least 1, or 0 or None for the whole share "
                f"of a batch. Received: max_tokens_per_device={max_tokens_per_device}."
            )
        losses = keras.tree.flatten(loss)
        loss = losses[0] if len(losses) == 1 else loss
        in_parts = bool(max_tokens_per_device or chunked_loss)
        _check_loss(loss, kwargs.get("loss_weights"), in_parts)
        every = keras.tree.flatten([metrics or [], weighted_metrics or []])
        objects = [metric for metric in every if isinstance(metric, keras.metrics.Metric)]
        stacks = any(isinstance(layer, Stack) for layer in self.layers)
        ours = stacks and isinstance(loss, LabelSmoothedCrossEntropy)
        by_layer = ours and jit_compile not in (False, "auto")
        of_loss = CompiledLoss(self._metric_state, self._compiled_loss) if by_layer else None
        chunks = ChunkedLoss(self, of_loss) if chunked_loss else None  # refuses some models
        optimizer = keras.optimizers.get(optimizer)
        in_half = self.dtype_policy.name == "mixed_float16"
        scales_itself = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if in_half and not scales_itself and kwargs.get("auto_scale_loss", True):
            optimizer = LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
        self.drop_metrics()
        kwargs["jit_compile"] = False if ours else jit_compile
        super().compile(
            optimizer, loss, metrics=metrics, weighted_metrics=weighted_metrics, **kwargs
        )
        self.replace_mean_loss(keras.metrics.Mean("loss", dtype=full_precision()))
        self.max_tokens_per_device, self._trained = max_tokens_per_device or None, ()
        # Bypasses Keras's `__setattr__`, which would track layers and metrics a second time.
        object.__setattr__(self, "_chunked_loss", chunks)
        object.__setattr__(self, "programs", Programs() if by_layer else None)
        object.__setattr__(self, "_metric_objects", objects)
        if in_parts:
            _warn_of_padding(metrics)

    def get_compile_config(self):
        config = super().get_compile_config()
        if config:
            config["jit_compile"] = self.jit_compile or self.programs is not None
        if config and self.max_tokens_per_device:
            config["max_tokens_per_device"] = self.max_tokens_per_device
        if config and self._chunked_loss:
            config["chunked_loss"] = True
        return config  # a clone by Keras, a plain model, takes only Keras's own arguments

    def compile_from_config(self, config):
        # Keras compiles a loaded model itself only if its class does not override `compile`.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    @property
    def running_means(self) -> list[keras.metrics.Metric]:
        """The running means of the loss and of the metrics that were passed as objects."""
        return [self.mean_loss, *self._metric_objects]

    def reset_metrics(self):
        """Resets all metrics; Keras skips restored ones that have seen no batch since."""
        super().reset_metrics()
        for mean in self.running_means if self.compiled else ():
            mean.reset_state()

    # --- Training ------------------------------------------------------------------------

    def make_predict_function(self, force=False):
        # Keras keeps what it has traced, though an adapter adds weights.
        before, self._predicted = self._predicted, tuple(map(id, self.weights))
        return super().make_predict_function(force or before != self._predicted)

    def make_test_function(self, force=False):
        before, self._tested = self._tested, tuple(map(id, self.weights))
        return super().make_test_function(force or before != self._tested)

    def fit(self, *args, **kwargs):
        if self.compiled:
            _check_fit(self, kwargs)
        trained = tuple(map(id, self.trainable_variables))
        if self._trained not in ((), trained):
            raise ValueError(
                "The weights to train are no longer those of the last `fit`, which Keras would "
                "train again: compile the model after `enable_lora` or a change of `trainable`."
            )
        self._trained = trained
        if self.compiled and not self.optimizer.built:  # in its trace, fit would trace again
            with self.distribute_strategy.scope():
                self.optimizer.build(self.trainable_variables)
        self._replica_seeds = self._replica_seeds or ReplicaSeeds(self)
        self._replica_seeds.spread()
        return super().fit(*args, **kwargs)

    def train_step(self, data):
        if not isinstance(self.loss, LabelSmoothedCrossEntropy):
            return super().train_step(data)
        inputs, labels, weights, count = self._unpack(data)
        global_count = tf.maximum(sum_over_replicas(count), 1e-9)
        zeros = [tf.zeros(v.shape, v.dtype) for v in self.trainable_variables]
        with by_programs(self.programs):
            total, gradients = sum_over_parts(
                lambda *part: self._gradients(*part, global_count),
                (inputs, labels, weights),
                (tf.constant(0.0), zeros),
                self.max_tokens_per_device,
            )
        # Loss scaling skips such an update instead.
        if not isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            total = _nan_unless_finite(total, gradients)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return self._logs(total, count)

    def test_step(self, data):
        if not isinstance(self.loss, LabelSmoothedCrossEntropy):
            return super().test_step(data)
        inputs, labels, weights, count = self._unpack(data)
        total = sum_over_parts(
            self._total, (inputs, labels, weights), tf.constant(0.0), self.max_tokens_per_device
        )
        return self._logs(total, count)

    def _unpack(self, data):
        """Returns inputs, labels [B, T], their weights, and the sum of the weights."""
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        labels = labels_of(self.output, labels)
        self._check_lengths(inputs, labels)
        weights = token_weights(labels, sample_weight)
        return inputs, labels, weights, tf.reduce_sum(weights)

    def _check_lengths(self, inputs, labels):
        """Raises an error if labels are unlike the target: now, or if unknown, in the step."""
        if isinstance(inputs, dict) and "target" in inputs and len(labels.shape) == 2:
            target = inputs["target"]
            labels_of(tf.TensorSpec([*target.shape, self.output.shape[-1]]), labels)
            tf.debugging.assert_equal(
                tf.shape(labels), tf.shape(target), "Labels must be as long as the target."
            )

    def _gradients(self, inputs, labels, weights, count):
        """Returns the sum of the loss, and the gradients of that sum (scaled) over `count`."""
        if self._chunked_loss:
            scale = self.optimizer.scale_loss(1 / count)
            loss = partial(self._loss_of_logits, inputs)
            return self._chunked_loss.gradients(
                inputs, labels, weights, scale, self.trainable_variables, loss
            )
        with tf.GradientTape() as tape:
            logits = self(inputs, training=True)
            total = self._loss_of_logits(inputs, labels, logits, weights)
            objective = self.optimizer.scale_loss(total / count)
        return total, tape.gradient(objective, self.trainable_variables)

    def _total(self, inputs, labels, weights):
        """Returns the sum of the loss over the tokens, without dropout."""
        loss = partial(self._loss_of_logits, inputs)
        if self._chunked_loss:
            return self._chunked_loss.total(inputs, labels, weights, loss)
        return loss(labels, self(inputs, training=False), weights)

    def _loss_of_logits(self, inputs, labels, logits, weights):
        """Updates the metrics; returns the sum of the loss over the tokens."""
        self.compute_metrics(inputs, labels, logits, weights)
        return self.loss.weighted_sum(labels, logits, weights)

    def _metric_state(self):
        vectors = keras.KerasTensor((None, self.output.shape[-1]), "float32")
        return self.variables_of_metrics(keras.KerasTensor((None,), "int64"), vectors)

    def _compiled_loss(self, labels, logits, weights, values):
        """Does what `_loss_of_logits` does, with the metrics' values before and after it."""
        variables = self._metric_state()
        state = list(zip(variables, values, strict=True))
        with keras.StatelessScope(state) as scope:
            total = self._loss_of_logits(None, labels, logits, weights)
        return total, [scope.get_current_value(variable) for variable in variables]

    def _logs(self, total, count):
        self.mean_loss.update_state(total / tf.maximum(count, 1e-9), sample_weight=count)
        # This replica's results. At the end of an epoch Keras computes the exact ones.
        results = self.get_metrics_result()
        if isinstance(self.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
            # Here Keras takes the mean over axis 0.
            return {name: tf.reshape(value, [1]) for name, value in results.items()}
        return results


def _nan_unless_finite(total, gradients):
    """Returns the total, or NaN if a gradient of any replica is not finite."""
    values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
    # A finite sum has only finite terms, and takes one number per weight, not many booleans.
    sums = tf.stack([tf.reduce_sum(tf.cast(value, "float32")) for value in values])
    wrong = tf.cast(~tf.reduce_all(tf.math.is_finite(sums)), "float32")
    return tf.where(sum_over_replicas(wrong) > 0, float("nan"), total)


# --- Arguments of `compile` and `fit` that would be ignored or misread ---------------------


def _check_loss(loss, loss_weights, in_parts: bool) -> None:
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


def _check_fit(model: keras.Model, arguments: Mapping[str, Any]) -> None:
    """Raises ValueError if `fit` would ignore, misread or later fail on its arguments."""
    plateau = keras.callbacks.ReduceLROnPlateau
    callbacks = keras.tree.flatten(arguments.get("callbacks") or [])
    if any(isinstance(c, plateau) for c in callbacks) and _follows_schedule(model.optimizer):
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


def _follows_schedule(optimizer: keras.optimizers.Optimizer) -> bool:
    """Tells whether the learning rate is a schedule."""
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return isinstance(inner.get_config()["learning_rate"], dict)


def _warn_of_padding(metrics) -> None:
    """Warns of metrics that would count the padding at the end of the last part or chunk."""
    plain = [m for m in keras.tree.flatten(metrics) if not isinstance(m, TokenMean)]
    if metrics and plain:
        names = ", ".join(getattr(m, "name", str(m)) for m in plain)
        logger.warning(
            "these metrics count padding, of which there is more with `max_tokens_per_device` "
            "or `chunked_loss`: %s; give them as `weighted_metrics`",
            names,
        )
