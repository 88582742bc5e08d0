"""Reshaping and transposing with few operations, which is what a small step of decoding is."""

import keras
import numpy as np
from keras import ops

_INTEGERS = {"float16": "int16", "bfloat16": "int16", "float32": "int32", "float64": "int64"}


def outer_shape(x):
    """All sizes of x but the last, to reshape with: -1 for a batch alone in being unknown.

    A shape that is known but for -1 is a constant; any other is computed at every step.
    """
    *outer, _ = x.shape
    if outer[0] is None and None not in outer[1:]:
        return (-1, *outer[1:])
    return ops.shape(x)[:-1]


def project(x, kernel, bias=None):
    """x kernel + bias: [B, ..., D] -> [B, ..., N], with kernel [D, N] and bias [N].

    One large product: a batched one is slower, and so is its gradient. The bias comes after
    the reshaping: added to the flat product it would be fused with it, and in bfloat16 an
    exported model would round otherwise than the same in Python.
    """
    flat = ops.matmul(ops.reshape(x, (-1, x.shape[-1])), kernel)
    outputs = ops.reshape(flat, (*outer_shape(x), ops.shape(kernel)[1]))
    return outputs if bias is None else outputs + bias


def transpose(x, axes):
    """`ops.transpose` of floats, moved as integers of the same width.

    On a CPU, floats are transposed by a library whose start takes longer than moving a
    small tensor.
    """
    integer = _INTEGERS[keras.backend.standardize_dtype(x.dtype)]

    @ops.custom_gradient
    def move(x):
        moved = ops.view(ops.transpose(ops.view(x, integer), axes), x.dtype)
        # Not this function again: a SavedModel keeps no gradients of gradients, and says so.
        return moved, lambda upstream: ops.transpose(upstream, np.argsort(axes).tolist())

    return move(x)
