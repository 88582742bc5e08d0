"""Matrix products and transposes of attention and the output, in few operations."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import keras
import numpy as np
from keras import ops

from tf_transformer.fast.keras_hooks import bitcast

_INTEGERS = {"float16": "int16", "bfloat16": "int16", "float32": "int32", "float64": "int64"}


def require_floats(x):
    """Raises ValueError for integers, to whose dtype a kernel would be rounded: to zeros."""
    dtype = keras.backend.standardize_dtype(x.dtype)
    if dtype not in _INTEGERS:
        raise ValueError(
            "`inputs` must be floating vectors [B, T, D]: embed ids with PositionalEmbedding, "
            f"cast other integers. Received: {dtype}, shape={tuple(x.shape)}."
        )


def outer_shape(x, inner=1):
    """Returns the leading dimensions of a tensor, without the last `inner`, for `reshape`.

    A size that alone is unknown is -1, which keeps the shape static; otherwise unknown sizes
    are computed at every step.
    """
    outer = tuple(x.shape)[:-inner]
    if outer.count(None) == 1:
        return tuple(-1 if size is None else size for size in outer)
    return ops.shape(x)[:-inner]


class QuantizedKernel:
    """A kernel [D, N] that computes its own products; see `fast.int8`."""

    def multiply(self, x):
        """Returns x @ kernel: [M, D] -> [M, N]."""
        raise NotImplementedError

    def rows(self, ids):
        """Returns the transposed kernel's rows with these numbers: [...] -> [..., D]."""
        raise NotImplementedError

    def join(self, others):
        """Returns this kernel and others side by side."""
        raise NotImplementedError


class Inference:
    """The weights of the layer that computes a search's steps, read once for all of them.

    `values` are those of an earlier object, in place of the layer's.
    """

    def __init__(self, layer: keras.layers.Layer, values=None):
        self.values = values or [ops.copy(weight) for weight in layer.weights]
        self._weights = list(zip(layer.weights, self.values, strict=True))

    @contextmanager
    def on(self) -> Iterator[None]:
        """Inside, the layer computes with the weights read, and without gradients."""
        token = _inference.set(self)
        try:
            with keras.StatelessScope(self._weights):
                yield
        finally:
            _inference.reset(token)


_inference: ContextVar[Inference | None] = ContextVar("inference", default=None)


def product(x, kernel):
    """Returns x @ kernel in the dtype of x: [M, D] -> [M, N]."""
    if isinstance(kernel, QuantizedKernel):
        return kernel.multiply(x)
    return ops.matmul(x, ops.cast(kernel, x.dtype))


def look_up(table, ids):
    """Returns rows of a table [V, D], or of a transposed kernel: ids [...] -> [..., D]."""
    if isinstance(table, QuantizedKernel):
        return table.rows(ids)
    return ops.take(table, ids, axis=0)


def project(x, kernel, bias=None, over=1, sizes=None):
    """Returns x @ kernel + bias in the dtype of x: [B, ..., D] -> [B, ..., N].

    Computed as one large product, since a batched one and its gradient are slower. The bias is
    added after reshaping: added to the flat product, it would be fused with it, and in bfloat16
    an exported model would round differently from Python.

    The last `over` axes of x make up D; N is split into axes of these sizes, [N] if None.
    """
    require_floats(x)
    flat = product(ops.reshape(x, (-1, kernel.shape[0])), kernel)
    sizes = sizes or (kernel.shape[1],)
    outputs = ops.reshape(flat, (*outer_shape(x, over), *sizes))
    if bias is None:
        return outputs
    bias = ops.cast(bias, x.dtype)
    return outputs + (ops.reshape(bias, sizes) if len(sizes) > 1 else bias)


def transpose(x, axes):
    """Transposes floats as integers of the same width, if all sizes but the batch's are known.

    On a CPU, the library that transposes floats takes longer to start than to move a small
    tensor. Large tensors take equally long either way.
    """
    if None in x.shape[1:]:
        return ops.transpose(x, axes)
    integer = _INTEGERS[keras.backend.standardize_dtype(x.dtype)]
    if _inference.get():
        return bitcast(ops.transpose(bitcast(x, integer), axes), x.dtype)

    @ops.custom_gradient
    def move(x):
        moved = ops.view(ops.transpose(ops.view(x, integer), axes), x.dtype)
        # A nested custom gradient would make saving warn: a SavedModel keeps no second ones.
        return moved, lambda upstream: ops.transpose(upstream, np.argsort(axes).tolist())

    return move(x)


def project_to_heads(x, kernel, bias, num_heads):
    """Projects [B, T, D] to heads [B, H, T, K], with kernel [D, H * K]."""
    sizes = num_heads, kernel.shape[1] // num_heads
    return transpose(project(x, kernel, bias, sizes=sizes), (0, 2, 1, 3))


def project_from_heads(heads, kernel, bias):
    """Projects heads [B, H, T, K] to [B, T, D], with kernel [H * K, D]."""
    return project(transpose(heads, (0, 2, 1, 3)), kernel, bias, over=2)


def side_by_side(kernels, biases, dtype):
    """Concatenates the kernels of queries, keys and values for one product; biases likewise.

    The joint bias is None if one of the biases is.
    """
    first, *others = kernels
    if isinstance(first, QuantizedKernel):
        kernel = first.join(others)
    else:
        kernel = ops.concatenate([ops.cast(kernel, dtype) for kernel in kernels], axis=1)
    if any(bias is None for bias in biases):
        return kernel, None
    return kernel, ops.concatenate([ops.cast(bias, dtype) for bias in biases])


def project_to_qkv_heads(x, kernel, bias, num_heads, key_dim):
    """Does what `project_to_heads` does, for queries, keys and values in one product.

    Kernel and bias are from `side_by_side`; K is `key_dim` of queries and keys, and the values
    take the remaining columns.
    """
    keys = num_heads * key_dim
    if kernel.shape[1] == 3 * keys:
        stacked = project(x, kernel, bias, sizes=(3, num_heads, key_dim))
        return tuple(ops.unstack(transpose(stacked, (2, 0, 3, 1, 4)), 3))
    parts = ops.split(project(x, kernel, bias), [keys, 2 * keys], axis=-1)
    return tuple(_split_heads(part, num_heads) for part in parts)


def _split_heads(x, num_heads):
    sizes = num_heads, x.shape[-1] // num_heads
    return transpose(ops.reshape(x, (*outer_shape(x), *sizes)), (0, 2, 1, 3))
