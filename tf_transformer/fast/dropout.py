"""Dropout (paper 5.4) with two masks from one random word."""

import math

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
        kept = self._numbers(ops.shape(inputs)) >= self._dropped - _LEVELS // 2
        scale = ops.cast(_LEVELS / (_LEVELS - self._dropped), inputs.dtype)
        return inputs * (ops.cast(kept, inputs.dtype) * scale)

    def _numbers(self, shape):
        """Draws int16 numbers, from -2^15 on; sizes of the shape may be tensors."""
        *outer, width = shape
        if isinstance(width, int):
            numbers = self._pairs((*outer, -(-width // 2)))
            return numbers[..., :width] if width % 2 else numbers
        count = math.prod(shape)
        flat = ops.reshape(self._pairs((-(-count // 2), 1)), (-1,))
        return ops.reshape(flat[:count], shape)

    def _pairs(self, shape):
        """Draws two numbers for each element of the shape, side by side on its last axis."""
        low, high = -(2**31), 2**31 - 1
        words = keras.random.randint(shape, low, high, seed=self.seed_generator)
        return ops.view(words, "int16")
