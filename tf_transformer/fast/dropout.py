"""Dropout (paper 5.4) with two masks from one random word."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import keras
from keras import ops

_LEVELS = 2**16  # a random number decides in so many levels

_drawn: dict[keras.random.SeedGenerator, keras.random.SeedGenerator] = {}


class _Drawn(keras.random.SeedGenerator):
    """A seed that was drawn before."""

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


@contextmanager
def drawn(generators: Sequence[keras.random.SeedGenerator], seeds) -> Iterator[None]:
    """Lets dropout take these seeds, of `generators`, instead of drawing new ones."""
    seeds = map(_Drawn, seeds)
    _drawn.update(zip(generators, seeds, strict=True))
    try:
        yield
    finally:
        for generator in generators:
            del _drawn[generator]


def dropped_levels(rate: float) -> int:
    """Returns the rate in levels; ValueError if it leaves nothing."""
    levels = round(rate * _LEVELS)
    if not 0 <= levels < _LEVELS:
        raise ValueError(f"`rate` must leave something: be in [0, 1). Received: {rate}.")
    return levels


def drop(inputs, levels: int, seed):
    """Sets a share of `levels` of the inputs [..., D] to 0 and scales up the others."""
    kept = _numbers(ops.shape(inputs), _drawn.get(seed, seed)) >= levels - _LEVELS // 2
    scale = ops.cast(_LEVELS / (_LEVELS - levels), inputs.dtype)
    return inputs * (ops.cast(kept, inputs.dtype) * scale)


def _numbers(shape, seed):
    """Draws int16 numbers, from -2^15 on; sizes of the shape may be tensors."""
    *outer, width = shape
    if isinstance(width, int):
        numbers = _pairs((*outer, -(-width // 2)), seed)
        return numbers[..., :width] if width % 2 else numbers
    count = math.prod(shape)
    flat = ops.reshape(_pairs((-(-count // 2), 1), seed), (-1,))
    return ops.reshape(flat[:count], shape)


def _pairs(shape, seed):
    """Draws two numbers for each element of the shape, side by side on its last axis."""
    words = keras.random.randint(shape, -(2**31), 2**31 - 1, seed=seed)
    return ops.view(words, "int16")


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
        self._dropped = dropped_levels(rate)

    def call(self, inputs, training=False):
        if not training or not self._dropped:
            return inputs
        return drop(inputs, self._dropped, self.seed_generator)
