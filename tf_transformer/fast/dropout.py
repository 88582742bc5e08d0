"""Dropout (paper 5.4) with two masks from one random word."""

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import keras
from keras import ops

_LEVELS = 2**16  # number of values of 16 random bits


class FixedSeed(keras.random.SeedGenerator):
    """A generator that always returns one seed, drawn earlier."""

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


class Hashed(FixedSeed):
    """An int64 seed whose random bits are a hash of it and of each value's index."""


# Inside `fixed_seeds`: the replacement of each seed generator.
_fixed_seeds: dict[keras.random.SeedGenerator, FixedSeed] = {}


@contextmanager
def fixed_seeds(
    generators: Sequence[keras.random.SeedGenerator], seeds: Sequence[FixedSeed]
) -> Iterator[None]:
    """Makes dropout use these seeds, one for each generator, instead of drawing new ones."""
    _fixed_seeds.update(zip(generators, seeds, strict=True))
    try:
        yield
    finally:
        for generator in generators:
            del _fixed_seeds[generator]


def dropout_levels(rate: float) -> int:
    """Rounds a rate to units of 2^-16; raises ValueError if the result is not in [0, 1)."""
    levels = round(rate * _LEVELS)
    if not 0 <= levels < _LEVELS:
        raise ValueError(
            f"The dropout rate must be in [0, 1), rounded to 16 bits. Received: {rate}."
        )
    return levels


def drop(inputs, levels: int, seed):
    """Sets a fraction levels / 2^16 of the inputs [..., D] to 0 and scales up the others."""
    seed = _fixed_seeds.get(seed, seed)
    if isinstance(seed, Hashed):
        bits = hashed_bits(ops.shape(inputs), seed.seed)
        kept = bits >= ops.cast(levels * (2**32 // _LEVELS), "uint32")
    else:
        kept = _random_int16(ops.shape(inputs), seed) >= levels - _LEVELS // 2
    scale = ops.cast(_LEVELS / (_LEVELS - levels), inputs.dtype)
    return inputs * (ops.cast(kept, inputs.dtype) * scale)


def hashed_bits(shape, seed):
    """Returns 32 random bits for each value, uint32: a hash of its index and an int64 seed.

    XLA computes them inside of what uses them, in both passes: no mask is stored. As plain
    operations they are slower than a generator. The hash is "lowbias32" (C. Wellons,
    "Prospecting for hash functions", 2018), once for each half of the seed. Indices count up
    to 2^32. Seeds must be random: those with the same upper half give the same bits in another
    order.
    """
    *outer, width = shape
    rows = ops.cast(ops.arange(math.prod(outer), dtype="int32"), "uint32")
    columns = ops.cast(ops.arange(width, dtype="int32"), "uint32")
    bits = rows[:, None] * ops.cast(width, "uint32") + columns
    for half in (seed, ops.right_shift(seed, 32)):
        bits = ops.bitwise_xor(bits, ops.cast(ops.bitwise_and(half, 2**32 - 1), "uint32"))
        for shift, factor in ((16, 0x7FEB352D), (15, 0x846CA68B), (16, 1)):
            shifted = ops.right_shift(bits, ops.cast(shift, "uint32"))
            bits = ops.bitwise_xor(bits, shifted) * ops.cast(factor, "uint32")
    return ops.reshape(bits, shape)


def _random_int16(shape, seed):
    """Draws int16 numbers from the whole range; sizes in the shape may be tensors."""
    *outer, width = shape
    if isinstance(width, int):
        numbers = _random_pairs((*outer, -(-width // 2)), seed)
        return numbers[..., :width] if width % 2 else numbers
    count = math.prod(shape)
    flat = ops.reshape(_random_pairs((-(-count // 2), 1), seed), (-1,))
    return ops.reshape(flat[:count], shape)


def _random_pairs(shape, seed):
    """Draws two int16 numbers for each element of the shape, adjacent on the last axis."""
    words = keras.random.randint(shape, -(2**31), 2**31 - 1, seed=seed)
    return ops.view(words, "int16")


@keras.saving.register_keras_serializable(package="tf_transformer")
class Dropout(keras.layers.Dropout):
    """Keras's Dropout with 16 random bits per value, two values from one random word.

    Drawing random words is most of dropout's cost. The rate is exact to 2^-17; kept values are
    divided by the fraction that is kept, up to the rounding of the dtype. Raises ValueError if
    `rate` rounds to 1, or `noise_shape` is given.
    """

    def __init__(self, rate: float, noise_shape=None, **kwargs):
        super().__init__(rate, noise_shape=noise_shape, **kwargs)
        if noise_shape is not None:
            raise ValueError(f"`noise_shape` must be None. Received: {noise_shape}.")
        self._dropout_levels = dropout_levels(rate)

    def call(self, inputs, training=False):
        if not training or not self._dropout_levels:
            return inputs
        return drop(inputs, self._dropout_levels, self.seed_generator)
