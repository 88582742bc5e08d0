"""Dropout (paper 5.4) with two masks from one random word."""

import keras
from keras import ops

_LEVELS = 2**16  # a random number decides in so many levels


@keras.saving.register_keras_serializable(package="tf_transformer")
class Dropout(keras.layers.Dropout):
    """Keras's Dropout with masks drawn in 16 bits each, two from one random word.

    Drawing random words is most of dropout's cost. The rate is exact to 2^-17; kept values are
    divided by the share that is kept, up to the rounding of the dtype.

    Args:
        rate: share of the inputs set to 0, in [0, 1).

    Call arguments:
        inputs: floating [..., D].
        training: drops nothing if False.

    Raises:
        ValueError: if `rate` is 1 when rounded, or `noise_shape` is given.
    """

    def __init__(self, rate: float, noise_shape=None, **kwargs):
        super().__init__(rate, noise_shape=noise_shape, **kwargs)
        if noise_shape is not None:
            raise ValueError(f"`noise_shape` must be None. Received: {noise_shape}.")
        self._dropped = round(rate * _LEVELS)  # levels
        if self._dropped >= _LEVELS:
            raise ValueError(f"`rate` must leave something: be below 1. Received: {rate}.")

    def call(self, inputs, training=False):
        if not training or not self._dropped:
            return inputs
        *outer, width = ops.shape(inputs)
        words = keras.random.randint(
            (*outer, -(-width // 2)), -(2**31), 2**31 - 1, seed=self.seed_generator
        )
        numbers = ops.view(words, "int16")  # from -2^15 on
        if width % 2:
            numbers = numbers[..., :width]
        kept = ops.cast(numbers >= self._dropped - _LEVELS // 2, inputs.dtype)
        scale = _LEVELS / (_LEVELS - self._dropped)
        return inputs * (kept * ops.cast(scale, inputs.dtype))
