"""A Keras model whose `fit` is exact on any number of devices and under accumulation."""

import logging

import keras
import tensorflow as tf

from tf_transformer.models.losses import LabelSmoothedCrossEntropy, token_weights
from tf_transformer.models.metrics import TokenMean, full_precision
from tf_transformer.fast.optimizers import LossScaleOptimizer

logger = logging.getLogger(__name__)

# Between the dropout seeds of two replicas: no seed that Keras draws is that large.
_SEED_DISTANCE = 2**33


@keras.saving.register_keras_serializable(package="tf_transformer")
class TokenModel(keras.Model):
    """A model with logits [B, T, V] that is trained on the mean loss of all real tokens.

    Compiled with `LabelSmoothedCrossEntropy`, loss and gradient are the sum over the tokens of
    the whole global batch divided by their number: the same whether one device computes them,
    several (`tf.distribute`), or one after the other in parts. Keras's own step divides by the
    tokens of each replica. With another loss, training is Keras's own.

    Each replica has dropout masks of its own. A gradient that is not finite makes the loss of
    the epoch NaN, so that a callback can stop; under loss scaling the update is skipped.

    A model with one label for each row has logits [B, V] and labels [B], 0 for rows of padding.

    Attributes:
        first_label: the label that column 0 of the logits stands for.
        unit: what has a label of its own, for the console.
    """

    max_tokens_per_device: int | None = None
    first_label = 0
    unit = "tokens"
    _seed_function = None

    def compile(
        self,
        optimizer="rmsprop",
        loss=None,
        *,
        metrics=None,
        weighted_metrics=None,
        max_tokens_per_device: int | None = None,
        **kwargs,
    ):
        """Compiles as Keras does; metrics of an earlier `compile` are dropped.

        Metrics of this package count real tokens, whichever list they are in. Others count
        padding too, unless they are weighted: `weighted_metrics` are given the sample weights
        of the real tokens, and 0 for padding.

        Args:
            max_tokens_per_device: a larger share of a batch (rows x length) is computed in
                parts, whose gradients are added before the one update.
        """
        optimizer = keras.optimizers.get(optimizer)
        scaled = isinstance(optimizer, keras.optimizers.LossScaleOptimizer)
        if self.dtype_policy.name == "mixed_float16" and not scaled:
            optimizer = LossScaleOptimizer(optimizer, name="loss_scale_optimizer")
        self._compile_metrics = None  # Keras keeps them where `metrics` is None
        super().compile(
            optimizer, loss, metrics=metrics, weighted_metrics=weighted_metrics, **kwargs
        )
        self.max_tokens_per_device = max_tokens_per_device
        given = keras.tree.flatten([metrics or [], weighted_metrics or []])
        self._track_metrics([one for one in given if isinstance(one, keras.metrics.Metric)])
        if max_tokens_per_device is not None:
            _warn_of_padding(metrics)

    def _track_metrics(self, own_metrics: list[keras.metrics.Metric]) -> None:
        """Keeps the metrics that are objects, and counts the loss in float32 at least.

        Past Keras's `__setattr__`, which would list every metric a second time.
        """
        loss = keras.metrics.Mean("loss", dtype=full_precision())
        object.__setattr__(self, "_loss_tracker", loss)
        object.__setattr__(self, "_own_metrics", own_metrics)

    def get_compile_config(self):
        config = super().get_compile_config()
        return config and config | {"max_tokens_per_device": self.max_tokens_per_device}

    def compile_from_config(self, config):
        # Keras compiles a loaded model itself only if its class leaves `compile` alone.
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.optimizer is not None and self.built:
            self.optimizer.build(self.trainable_variables)

    @property
    def running_means(self) -> list[keras.metrics.Metric]:
        """The loss and the metrics, where given as objects, since their last reset."""
        return [self._loss_tracker, *self._own_metrics]

    def reset_metrics(self):
        """Resets all: Keras leaves out those that have seen no batch, though assigned to."""
        super().reset_metrics()
        for mean in self.running_means if self.compiled else ():
            mean.reset_state()

    def fit(self, *args, **kwargs):
        self._give_replicas_their_own_dropout()
        return super().fit(*args, **kwargs)

    def train_step(self, data):
        if not isinstance(self.loss, LabelSmoothedCrossEntropy):
            return super().train_step(data)
        inputs, labels, weights, count = self._unpack(data)
        everywhere = tf.maximum(_over_replicas(count), 1e-9)
        nothing = [tf.zeros(v.shape, v.dtype) for v in self.trainable_variables]
        total, gradients = self._add_up_parts(
            lambda *part: self._gradients(*part, everywhere),
            (inputs, labels, weights),
            (tf.constant(0.0), nothing),
        )
        total = self._not_finite_if_gradients_are_not(total, gradients)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return self._logs(total, count)

    def test_step(self, data):
        if not isinstance(self.loss, LabelSmoothedCrossEntropy):
            return super().test_step(data)
        inputs, labels, weights, count = self._unpack(data)
        total = self._add_up_parts(
            lambda *part: self._total(*part, training=False),
            (inputs, labels, weights),
            tf.constant(0.0),
        )
        return self._logs(total, count)

    def _unpack(self, data):
        """Inputs, labels [B, T] or [B], the weight of each of them and the sum of these."""
        inputs, labels, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        weights = token_weights(labels, sample_weight)
        return inputs, labels, weights, tf.reduce_sum(weights)

    def _total(self, inputs, labels, weights, training: bool):
        """The sum of the loss over the tokens; updates the metrics."""
        logits = self(inputs, training=training)
        self.compute_metrics(inputs, labels, logits, weights)
        return self.loss.weighted_sum(labels, logits, weights)

    def _gradients(self, inputs, labels, weights, count):
        """The loss's sum, and the gradients of the (scaled) sum divided by `count`."""
        with tf.GradientTape() as tape:
            total = self._total(inputs, labels, weights, training=True)
            objective = self.optimizer.scale_loss(total / count)
        return total, tape.gradient(objective, self.trainable_variables)

    def _add_up_parts(self, compute, tensors, zeros):
        """The sums of what `compute` returns for parts of `tensors` of [B, ...].

        Each part has `max_tokens_per_device` positions at most; `zeros` are the first sums.
        """
        if self.max_tokens_per_device is None:
            return compute(*tensors)
        parts, tensors = _in_parts(tensors, self.max_tokens_per_device)

        def add_part(index, sums):
            found = compute(*tf.nest.map_structure(lambda t: t[index], tensors))
            added = tf.nest.map_structure(lambda a, b: a + tf.convert_to_tensor(b), sums, found)
            return index + 1, added

        _, sums = tf.while_loop(
            lambda index, _: index < parts,
            add_part,
            (tf.constant(0), zeros),
            parallel_iterations=1,
        )
        return sums

    def _not_finite_if_gradients_are_not(self, total, gradients):
        if isinstance(self.optimizer, keras.optimizers.LossScaleOptimizer):
            return total  # it skips such an update, as is meant
        values = [g.values if isinstance(g, tf.IndexedSlices) else g for g in gradients]
        # No finite sum has a term that is not: one number a weight, and no array of booleans.
        sums = tf.stack([tf.reduce_sum(tf.cast(value, "float32")) for value in values])
        wrong = tf.cast(~tf.reduce_all(tf.math.is_finite(sums)), "float32")
        return tf.where(_over_replicas(wrong) > 0, float("nan"), total)

    def _logs(self, total, count):
        self._loss_tracker.update_state(total / tf.maximum(count, 1e-9), sample_weight=count)
        # These are a replica's own. At the end of an epoch Keras finds the exact results.
        results = self.get_metrics_result()
        if isinstance(self.distribute_strategy, tf.distribute.MultiWorkerMirroredStrategy):
            # There, Keras takes the mean over axis 0.
            return {name: tf.reshape(value, [1]) for name, value in results.items()}
        return results

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Keras would build on the mean of the replicas' first batches, which fails where
        these differ in shape and under MultiWorkerMirroredStrategy."""
        if self._distribute_strategy is None:
            super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
            return
        with self.distribute_strategy.scope():
            if self.optimizer is not None and not self.optimizer.built:
                self.optimizer.build(self.trainable_variables)
            self._post_build()

    def _give_replicas_their_own_dropout(self) -> None:
        """Replica r's seeds are those of replica 0 and r times a distance."""
        strategy = self.distribute_strategy
        if strategy.num_replicas_in_sync > 1:
            local = strategy.experimental_local_results
            first = [local(seed.value)[0].numpy() for seed in dropout_seeds(self)]
            # This worker's first copy may be of another replica than 0.
            first = [[number % _SEED_DISTANCE, count] for number, count in first]
            self._distribute_seeds(tf.constant(first, "int64"))

    def _distribute_seeds(self, first: tf.Tensor) -> None:
        """Gives every replica its seeds, from those of replica 0, [number of seeds, 2]."""
        if self._seed_function is None:

            def of_replica(first):
                replica = tf.distribute.get_replica_context().replica_id_in_sync_group
                distance = tf.cast(replica, "int64") * _SEED_DISTANCE
                for index, state in enumerate(dropout_seeds(self)):
                    seed = first[index] + tf.stack([distance, tf.zeros_like(distance)])
                    state.assign(tf.cast(seed, state.dtype))

            self._seed_function = tf.function(
                lambda first: self.distribute_strategy.run(of_replica, args=(first,)),
                autograph=False,
            )
        self._seed_function(first)


def dropout_seeds(model: keras.Model) -> list[keras.Variable]:
    """The states of the model's random generators, in the order of its layers."""
    return [v for v in model.non_trainable_variables if "seed_generator" in v.path]


def _warn_of_padding(metrics) -> None:
    """Names the metrics that would count the rows of padding which fill up the last part."""
    plain = [one for one in keras.tree.flatten(metrics) if not isinstance(one, TokenMean)]
    if metrics and plain:
        names = ", ".join(getattr(one, "name", str(one)) for one in plain)
        logger.warning(
            "metrics that count padding, which depends on `max_tokens_per_device`: %s; give "
            "them as `weighted_metrics`",
            names,
        )


def _over_replicas(value):
    """The sum of every replica's value."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


def _in_parts(tensors, max_tokens: int):
    """Cuts rows into parts of at most `max_tokens` positions, or of one row.

    Returns:
        The number of parts P, and every tensor [B, ...] as [P, rows, ...] with rows of zeros
        (that is of padding) at the end.
    """
    flat = tf.nest.flatten(tensors)
    rows = tf.shape(flat[0])[0]
    longest = tf.reduce_max([tf.shape(t)[1] for t in flat if t.shape.rank > 1])
    most = tf.maximum(max_tokens // tf.maximum(longest, 1), 1)
    parts = tf.maximum(-(-rows // most), 1)
    size = -(-rows // parts)

    def cut(tensor):
        missing = parts * size - rows
        padding = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
        shape = tf.concat([[parts, size], tf.shape(tensor)[1:]], axis=0)
        return tf.reshape(tf.pad(tensor, padding), shape)

    return parts, tf.nest.map_structure(cut, tensors)
