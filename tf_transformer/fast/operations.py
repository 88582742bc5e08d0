"""Projections, cross-entropy, normalization, dropout and recomputation, in few operations.

`tests/fast/test_operations.py` compares each with its plain twin.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar

import keras
import numpy as np
from keras import ops
from keras.src.backend import get_keras_mask

from tf_transformer.fast.keras_model import bitcast

# --- Projections and transposes for decoding steps ---------------------------------------

_INTEGERS = {"float16": "int16", "bfloat16": "int16", "float32": "int32", "float64": "int64"}


def mask_of(x):
    """Returns the mask that Keras attached to a tensor, or None."""
    return get_keras_mask(x)


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

    The batch size is -1 if it alone is unknown, which keeps the shape static; otherwise
    unknown sizes are computed at every step.
    """
    outer = x.shape[:-inner]
    if outer[0] is None and None not in outer[1:]:
        return (-1, *outer[1:])
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
    """The weights of a layer, read once for all steps of a search.

    Args:
        layer: the layer, which computes the steps.
    """

    def __init__(self, layer: keras.layers.Layer):
        self._weights = [(weight, ops.copy(weight)) for weight in layer.weights]

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
    return (
        table.rows(ids) if isinstance(table, QuantizedKernel) else ops.take(table, ids, axis=0)
    )


def project(x, kernel, bias=None, over=1, sizes=None):
    """Returns x @ kernel + bias in the dtype of x: [B, ..., D] -> [B, ..., N].

    Computed as one large product, since a batched one and its gradient are slower. The bias is
    added after reshaping: added to the flat product, it would be fused with it, and in bfloat16
    an exported model would round differently from Python.

    Args:
        x: [B, ..., D].
        kernel: [D, N].
        bias: [N], or None.
        over: number of trailing axes of x that make up D.
        sizes: sizes of the axes that N is split into; [N] if None.
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

    Args:
        x: [B, T, D].
        kernel: from `side_by_side`.
        bias: from `side_by_side`.
        num_heads: H.
        key_dim: K of queries and keys; the values take the remaining columns.
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


# --- Label-smoothed cross-entropy (paper 5.4) with an explicit gradient ------------------


def softmax_statistics(labels, logits, first_label: int = 0):
    """Computes the statistics of the logits that loss and metrics share in a graph.

    Args:
        labels: integer [B, T], or [B].
        logits: float32 [B, T, V], or [B, V].
        first_label: the label of column 0 of the logits.

    Returns:
        The softmax [B, T, V]; then logsumexp(logits), the maximum and the label's logit, all
        [B, T]; without the axis T if `labels` lack it. The logit of a label without a column
        is NaN.
    """
    # One operation over all logits; computing exponentials and their sum would add three.
    probabilities = ops.softmax(logits, axis=-1)
    maximum = ops.max(logits, axis=-1)
    # The largest probability cannot underflow.
    log_sum = maximum - ops.log(ops.max(probabilities, axis=-1))
    vocab_size = logits.shape[-1]
    positions = _label_positions(labels, vocab_size, first_label)
    label_logits = ops.take(ops.reshape(logits, (-1,)), positions)
    label_logits = ops.reshape(label_logits, ops.shape(labels))
    known = ops.logical_and(labels >= 0, labels < vocab_size + first_label)
    return probabilities, log_sum, maximum, ops.where(known, label_logits, float("nan"))


def _label_positions(labels, vocab_size: int, first_label: int):
    """Returns the labels' indices in flat logits [B * T * V], which can exceed 2^31: int64."""
    flat_labels = ops.reshape(ops.cast(labels, "int64"), (-1,))
    # Padding, and a label without a column, take some column of their own row.
    flat_labels = ops.clip(flat_labels - first_label, 0, vocab_size - 1)
    rows = ops.arange(ops.size(flat_labels), dtype="int64")
    return rows * vocab_size + flat_labels


def smoothed_cross_entropy(
    labels, logits, label_smoothing: float, first_label: int = 0, scatter: bool = True
):
    """Computes cross-entropy with 1 - e on the label and e spread over V tokens (paper 5.4).

    The loss is logsumexp(z) - (1 - e) z[label] - e mean(z), and its gradient
    softmax(z) - e / V - (1 - e) onehot(label). Neither pass builds a one-hot tensor.

    Args:
        labels: integer [B, T], or [B].
        logits: floating [B, T, V], or [B, V]; computed in float32.
        label_smoothing: e in [0, 1).
        first_label: the label of column 0 of the logits.
        scatter: False computes the same gradient by comparing every column with the label.

    Returns:
        float32 of the shape of `labels`, in nats.
    """

    @ops.custom_gradient
    def cross_entropy(logits):
        probabilities, log_sum, _, label_logits = softmax_statistics(
            labels, logits, first_label
        )
        smooth = (1 - label_smoothing) * label_logits
        if label_smoothing:
            smooth = smooth + label_smoothing * ops.mean(logits, axis=-1)

        def gradient(upstream):
            return _gradient(
                labels, probabilities, upstream, label_smoothing, first_label, scatter
            )

        return log_sum - smooth, gradient

    return cross_entropy(ops.cast(logits, "float32"))


def _gradient(labels, probabilities, upstream, label_smoothing, first_label, scatter):
    """Returns the gradient with respect to the logits: `upstream` [B, T] -> [B, T, V]."""
    vocab_size = probabilities.shape[-1]
    grad = (probabilities - label_smoothing / vocab_size) * upstream[..., None]
    positions = _label_positions(labels, vocab_size, first_label)
    at_label = ops.take(ops.reshape(probabilities, (-1,)), positions) - (
        1 - label_smoothing + label_smoothing / vocab_size
    )
    at_label = at_label * ops.reshape(upstream, (-1,))
    if not scatter:
        at_label = ops.reshape(at_label, ops.shape(labels))[..., None]
        columns = ops.maximum(ops.cast(labels, "int32") - first_label, 0)[..., None]
        is_label = ops.equal(columns, ops.arange(vocab_size, dtype="int32"))  # [B, T, V]
        return ops.where(is_label, at_label, grad)
    flat = ops.scatter_update(ops.reshape(grad, (-1,)), positions[:, None], at_label)
    return ops.reshape(flat, ops.shape(probabilities))


# --- Layer normalization (paper 3.1; Ba et al. 2016) with an explicit gradient -----------


def normalize(inputs, epsilon: float):
    """Returns (x - mean) / sqrt(variance + epsilon) over the last axis, and 1 / sqrt(...)."""
    centred = inputs - ops.mean(inputs, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    rate = ops.rsqrt(variance + epsilon)
    return centred * rate, rate


def normalize_in_training(inputs, gamma, beta, epsilon: float):
    """Returns `normalize` * gamma + beta, with a gradient that needs little memory.

    Only the normalized x and 1 / sqrt(variance + epsilon) are kept between the passes. The
    gradient of the inputs is g = dy * gamma, less its components along 1 and the normalized x,
    divided by sqrt(variance + epsilon).

    Args:
        inputs: float32 or float64 [..., D].
        gamma: scale, [D].
        beta: offset, [D].
        epsilon: added to the variance.

    Returns:
        [..., D].
    """
    width = inputs.shape[-1]

    @ops.custom_gradient
    def norm(inputs, gamma, beta):
        normal, rate = normalize(inputs, epsilon)

        def gradient(upstream):
            rows = ops.reshape(upstream, (-1, width))
            products = ops.reshape(upstream * normal, (-1, width))
            # Both means over D of g and of g * x, as products with gamma / D.
            weights = ops.reshape(gamma / width, (width, 1))
            shape = ops.shape(rate)
            along_one = ops.reshape(ops.matmul(rows, weights), shape)
            along_x = ops.reshape(ops.matmul(products, weights), shape)
            inner = upstream * gamma - along_one - normal * along_x
            return inner * rate, ops.sum(products, axis=0), ops.sum(rows, axis=0)

        return normal * gamma + beta, gradient

    return norm(inputs, gamma, beta)


@keras.saving.register_keras_serializable(package="tf_transformer")
class LayerNormalization(keras.layers.LayerNormalization):
    """Keras's LayerNormalization over the last axis, with scale and offset; faster in training.

    Computes in float32 under half-precision policies.

    Args:
        epsilon: added to the variance.
        **kwargs: other arguments of Keras's layer.

    Call arguments:
        inputs: [..., D].

    Raises:
        ValueError: for another `axis`, for `rms_scaling`, or without `center` or `scale`.
    """

    def __init__(self, epsilon: float = 1e-3, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)
        plain = self.center and self.scale and not self.rms_scaling
        if self.axis not in (-1, [-1]) or not plain:
            raise ValueError(
                "Only the last axis, with scale and offset, can be normalised. Received: "
                f"axis={self.axis}, center={self.center}, scale={self.scale}, "
                f"rms_scaling={self.rms_scaling}."
            )

    def call(self, inputs, training=None):
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        tensors = (inputs, self.gamma, self.beta)
        inputs, gamma, beta = (ops.cast(tensor, dtype) for tensor in tensors)
        if training:
            outputs = normalize_in_training(inputs, gamma, beta, self.epsilon)
        else:  # no custom gradient, which would slow down saving a SavedModel
            outputs = normalize(inputs, self.epsilon)[0] * gamma + beta
        return ops.cast(outputs, self.compute_dtype)


# --- Dropout (paper 5.4) with two masks from one random word -----------------------------

_LEVELS = 2**16  # number of values of 16 random bits

# Inside `drawn`: the replacement of each seed generator.
_drawn: dict[keras.random.SeedGenerator, keras.random.SeedGenerator] = {}


class _Drawn(keras.random.SeedGenerator):
    """A generator that always returns one seed, drawn earlier."""

    def __init__(self, seed):
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


@contextmanager
def drawn(generators: Sequence[keras.random.SeedGenerator], seeds) -> Iterator[None]:
    """Makes dropout use these seeds, one for each generator, instead of drawing new ones."""
    _drawn.update(zip(generators, map(_Drawn, seeds), strict=True))
    try:
        yield
    finally:
        for generator in generators:
            del _drawn[generator]


def dropped_levels(rate: float) -> int:
    """Rounds a rate to units of 2^-16; raises ValueError if the result is not in [0, 1)."""
    levels = round(rate * _LEVELS)
    if not 0 <= levels < _LEVELS:
        raise ValueError(
            f"The dropout rate must be in [0, 1), rounded to 16 bits. Received: {rate}."
        )
    return levels


def drop(inputs, levels: int, seed):
    """Sets a fraction levels / 2^16 of the inputs [..., D] to 0 and scales up the others."""
    kept = _numbers(ops.shape(inputs), _drawn.get(seed, seed)) >= levels - _LEVELS // 2
    scale = ops.cast(_LEVELS / (_LEVELS - levels), inputs.dtype)
    return inputs * (ops.cast(kept, inputs.dtype) * scale)


def _numbers(shape, seed):
    """Draws int16 numbers from the whole range; sizes in the shape may be tensors."""
    *outer, width = shape
    if isinstance(width, int):
        numbers = _pairs((*outer, -(-width // 2)), seed)
        return numbers[..., :width] if width % 2 else numbers
    count = math.prod(shape)
    flat = ops.reshape(_pairs((-(-count // 2), 1), seed), (-1,))
    return ops.reshape(flat[:count], shape)


def _pairs(shape, seed):
    """Draws two int16 numbers for each element of the shape, adjacent on the last axis."""
    words = keras.random.randint(shape, -(2**31), 2**31 - 1, seed=seed)
    return ops.view(words, "int16")


@keras.saving.register_keras_serializable(package="tf_transformer")
class Dropout(keras.layers.Dropout):
    """Keras's Dropout with 16 random bits per value, two values from one random word.

    Drawing random words is most of dropout's cost. The rate is exact to 2^-17; kept values are
    divided by the fraction that is kept, up to the rounding of the dtype.

    Args:
        rate: fraction of the inputs set to 0, in [0, 1).

    Call arguments:
        inputs: floating [..., D].
        training: drops nothing if False.

    Raises:
        ValueError: if `rate` rounds to 1, or `noise_shape` is given.
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


# --- Layers recomputed in the backward pass, not stored (Chen et al. 2016) ---------------


def recomputed(layer: keras.layers.Layer) -> Callable:
    """Returns a function that calls a layer in training and stores only its inputs.

    The layer's dropout seeds advance once; each generator may be used only once in a call.
    Only positional inputs receive gradients: pass masks by keyword.
    """
    layers = layer._flatten_layers()
    generators = [part.seed_generator for part in layers if hasattr(part, "seed_generator")]

    def call(*inputs, **options):
        seeds = [generator.next() for generator in generators]

        def forward(*tensors):
            with drawn(generators, seeds):
                return layer(*tensors, **options)

        return keras.remat(forward)(*(tensor for tensor in inputs if tensor is not None))

    return call
