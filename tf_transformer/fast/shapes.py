"""Reshaping and transposing with few operations, which is what a small step of decoding is."""

import keras
import numpy as np
from keras import ops

_INTEGERS = {"float16": "int16", "bfloat16": "int16", "float32": "int32", "float64": "int64"}


def outer_shape(x, inner=1):
    """All sizes of x but the last `inner`, to reshape with: -1 for a batch alone in being
    unknown.

    A shape that is known but for -1 is a constant; any other is computed at every step.
    """
    outer = x.shape[:-inner]
    if outer[0] is None and None not in outer[1:]:
        return (-1, *outer[1:])
    return ops.shape(x)[:-inner]


def project(x, kernel, bias=None, over=1, sizes=None):
    """x kernel + bias: [B, ..., D] -> [B, ..., N], with kernel [D, N] and bias [N].

    One large product: a batched one is slower, and so is its gradient. The bias comes after
    the reshaping: added to the flat product it would be fused with it, and in bfloat16 an
    exported model would round otherwise than the same in Python.

    Args:
        over: how many of x's last axes make D.
        sizes: of the axes that N is split into.
    """
    flat = ops.matmul(ops.reshape(x, (-1, kernel.shape[0])), kernel)
    sizes = sizes or (kernel.shape[1] or ops.shape(kernel)[1],)
    outputs = ops.reshape(flat, (*outer_shape(x, over), *sizes))
    if bias is None:
        return outputs
    return outputs + (ops.reshape(bias, sizes) if len(sizes) > 1 else bias)


def transpose(x, axes):
    """`ops.transpose` of floats; where the batch alone is unknown, as in a step of decoding,
    they are moved as integers of the same width.

    On a CPU, floats are transposed by a library whose start takes longer than moving a
    small tensor. A large one takes as long either way.
    """
    if None in x.shape[1:]:
        return ops.transpose(x, axes)
    integer = _INTEGERS[keras.backend.standardize_dtype(x.dtype)]

    @ops.custom_gradient
    def move(x):
        moved = ops.view(ops.transpose(ops.view(x, integer), axes), x.dtype)
        # Not this function again: a SavedModel keeps no gradients of gradients, and says so.
        return moved, lambda upstream: ops.transpose(upstream, np.argsort(axes).tolist())

    return move(x)
