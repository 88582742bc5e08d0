"""Dropout (paper 5.4), with half as many random words as numbers."""

import keras
from keras import ops

_LEVELS = 2**16  # a random number decides in so many levels


@keras.saving.register_keras_serializable(package="tf_transformer")
class Dropout(keras.layers.Dropout):
    """Keras's Dropout with masks drawn in 16 bits each, two from one random word.

    Drawing random words is most of dropout's cost. The rate is exact to 2^-17, and what is kept
    is divided by the exact share that is kept. `noise_shape` is not supported.

    Args:
        rate: the share that is set to 0, as Keras takes it.

    Call arguments:
        inputs: floating [..., D].
        training: whether to drop anything.
    """

    def call(self, inputs, training=False):
        dropped = round(self.rate * _LEVELS)
        if not training or not dropped:
            return inputs
        *outer, width = ops.shape(inputs)
        words = keras.random.randint(
            (*outer, -(-width // 2)), -(2**31), 2**31 - 1, seed=self.seed_generator
        )
        numbers = ops.view(words, "int16")[..., :width]  # from -2^15 on
        kept = ops.cast(numbers >= dropped - _LEVELS // 2, inputs.dtype)
        return inputs * (kept * ops.cast(_LEVELS / (_LEVELS - dropped), inputs.dtype))
