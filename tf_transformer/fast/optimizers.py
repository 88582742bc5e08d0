"""Adam (paper 5.3) and loss scaling, exact under distribution strategies."""

from collections.abc import Iterator
from contextlib import contextmanager

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.fast.keras_hooks import handle_of


@keras.saving.register_keras_serializable(package="tf_transformer")
class Adam(keras.optimizers.Adam):
    """Keras's Adam with four differences.

    - `global_clipnorm` clips the gradient of the global batch, summed over the replicas; Keras
      clips the gradient of each replica separately.
    - An embedding row used n times in a batch has one gradient, the sum; Keras squares each of
      the n terms.
    - An update is one fused operation per weight.
    - A moving average (`use_ema`) never replaces the weights at the end of `fit`: see
      `averaged_weights`. Its decay at update t = 0, 1, ... is the smaller of `ema_momentum` and
      (1 + t) / (10 + t), so that it soon forgets the initial weights.

    Raises ValueError for `amsgrad`, which the fused operation lacks.
    """

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        if self.amsgrad:
            raise ValueError(
                "This Adam has no `amsgrad`: use keras.optimizers.Adam. Received: amsgrad=True."
            )

    def _clip_gradients(self, grads):
        return grads

    def _all_reduce_sum_gradients(self, grads_and_vars):
        reduced = super()._all_reduce_sum_gradients(grads_and_vars)
        gradients, variables = zip(*reduced, strict=True)
        gradients = [tf.convert_to_tensor(gradient) for gradient in gradients]  # sums slices
        return list(zip(super()._clip_gradients(gradients), variables, strict=True))

    def update_step(self, gradient, variable, learning_rate):
        index = self._get_variable_index(variable)
        step = tf.cast(self.iterations + 1, variable.dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=handle_of(variable),
            m=handle_of(self._momentums[index].value),
            v=handle_of(self._velocities[index].value),
            beta1_power=tf.pow(tf.cast(self.beta_1, variable.dtype), step),
            beta2_power=tf.pow(tf.cast(self.beta_2, variable.dtype), step),
            lr=tf.cast(learning_rate, variable.dtype),
            beta1=self.beta_1,
            beta2=self.beta_2,
            epsilon=self.epsilon,
            grad=tf.cast(gradient, variable.dtype),
        )

    def _update_model_variables_moving_average(self, weights):
        updates = tf.cast(self.iterations, "float32")
        decay = tf.minimum(self.ema_momentum, (1 + updates) / (10 + updates))
        decay = tf.where(updates > 0, decay, 0.0)  # there is no average yet, only zeros
        for weight, average in zip(weights, self._model_variables_moving_average, strict=True):
            rate = tf.cast(decay, weight.dtype)
            average.assign(rate * average + (1 - rate) * weight)

    def finalize_variable_values(self, var_list):
        pass


@keras.saving.register_keras_serializable(package="tf_transformer")
class LossScaleOptimizer(keras.optimizers.LossScaleOptimizer):
    """Skips an update if a gradient overflows on any replica; Keras checks only one of them."""

    def check_finite(self, grads):
        wrong = tf.cast(tf.logical_not(super().check_finite(grads)), "float32")
        context = tf.distribute.get_replica_context()
        if context is not None and context.num_replicas_in_sync > 1:
            wrong = context.all_reduce(tf.distribute.ReduceOp.SUM, wrong)
        return tf.equal(wrong, 0.0)


def step_of(optimizer: keras.optimizers.Optimizer) -> int:
    """Returns the number of updates made, not counting those skipped by loss scaling."""
    return int(optimizer.iterations.numpy())


def learning_rate(optimizer: keras.optimizers.Optimizer) -> float:
    """Returns the learning rate of the next update."""
    return float(optimizer.learning_rate)


@contextmanager
def averaged_weights(model: keras.Model) -> Iterator[None]:
    """Replaces the weights with their moving average, if there is one, within the context."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    if not optimizer.use_ema:
        yield
        return
    weights = [variable.numpy() for variable in model.trainable_variables]
    averages = [average.numpy() for average in optimizer._model_variables_moving_average]
    _assign(model, averages)
    try:
        yield
    finally:
        _assign(model, weights)


def _assign(model: keras.Model, values: list[np.ndarray]) -> None:
    for variable, value in zip(model.trainable_variables, values, strict=True):
        variable.assign(value)
