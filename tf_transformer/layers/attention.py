"""Scaled dot-product and multi-head attention (paper 3.2)."""

import keras
import numpy as np
from keras import ops

from tf_transformer.fast.shapes import outer_shape, project, transpose
from tf_transformer.layers.masking import combine_masks

# Added in float32, whatever `floatx` is: finite, so that a fully masked row is not NaN.
MASKED_SCORE = np.float32(-1e9)


def scaled_dot_product_attention(query, key, value, mask=None):
    """softmax(Q K^T / sqrt(d_k)) V (paper 3.2.1, equation 1), the softmax in float32.

    Args:
        query: [B, H, T, K].
        key: [B, H, S, K].
        value: [B, H, S, value_dim].
        mask: boolean, broadcastable to [B, H, T, S], True where attention may look.

    Returns:
        The weighted values [B, H, T, value_dim] and the weights [B, H, T, S].
    """
    query = query * ops.cast(query.shape[-1] ** -0.5, query.dtype)
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))  # [B, H, T, S]
    scores = ops.cast(scores, "float32")
    if mask is not None:
        scores = scores + ops.where(mask, np.float32(0), MASKED_SCORE)
    weights = ops.cast(ops.softmax(scores, axis=-1), value.dtype)
    return ops.matmul(weights, value), weights


@keras.saving.register_keras_serializable(package="tf_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Multi-head attention (paper 3.2.2).

    Args:
        num_heads: number of heads H.
        key_dim: size K of each head's queries and keys; d_model / num_heads by default.
        value_dim: size of each head's values; d_model / num_heads by default.
        kernel_initializer: for each of the four projections.
        use_bias: add a bias to each of the four; the paper has none.

    Call arguments:
        query: [B, T, D].
        value: [B, S, D]; the query itself (self-attention) if None.
        query_mask, value_mask: boolean [B, T] and [B, S], True at real positions; Keras fills
            them in from tensors that carry a mask.
        attention_mask: boolean [B or 1, T, S], True where a query may look.

    Returns:
        [B, T, D].

    Raises:
        ValueError: if `num_heads` does not divide D and a head size is left to default.

    Example:
        >>> MultiHeadAttention(num_heads=8)(keras.random.normal((2, 5, 64))).shape
        (2, 5, 64)
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        kernel_initializer="glorot_uniform",
        use_bias: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.use_bias = use_bias
        self.supports_masking = True

    def build(self, query_shape, value_shape=None):
        d_model = query_shape[-1]
        value_width = d_model if value_shape is None else value_shape[-1]
        if d_model % self.num_heads and None in (self.key_dim, self.value_dim):
            raise ValueError(
                "`num_heads` must divide `d_model`, unless key_dim and value_dim are given. "
                f"Received: num_heads={self.num_heads}, d_model={d_model}."
            )
        keys = self.num_heads * (self.key_dim or d_model // self.num_heads)
        values = self.num_heads * (self.value_dim or d_model // self.num_heads)
        self.query_kernel = self._add_kernel("query_kernel", (d_model, keys))
        self.key_kernel = self._add_kernel("key_kernel", (value_width, keys))
        self.value_kernel = self._add_kernel("value_kernel", (value_width, values))
        self.output_kernel = self._add_kernel("output_kernel", (values, d_model))
        self.query_bias = self._add_bias("query_bias", keys)
        self.key_bias = self._add_bias("key_bias", keys)
        self.value_bias = self._add_bias("value_bias", values)
        self.output_bias = self._add_bias("output_bias", d_model)

    def _add_kernel(self, name, shape):
        # A shared initialiser instance would fill equal shapes with equal numbers.
        initializer = self.kernel_initializer.clone()
        return self.add_weight(name=name, shape=shape, initializer=initializer)

    def _add_bias(self, name, size):
        """Zeros [size]; None without biases."""
        if not self.use_bias:
            return None
        return self.add_weight(name=name, shape=(size,), initializer="zeros")

    def call(self, query, value=None, query_mask=None, value_mask=None, attention_mask=None):
        if value is None:
            heads, key_mask = self.project_self(query), query_mask
            if key_mask is None:
                # Keras fills in `query_mask` only beside a second tensor.
                key_mask = getattr(query, "_keras_mask", None)
        else:
            heads = self.project_query(query), *self.project_memory(value)
            key_mask = value_mask
        outputs, _ = self.attend(*heads, mask=combine_masks(key_mask, attention_mask))
        return outputs

    def project_query(self, query):
        """[B, T, D] -> queries [B, H, T, K]."""
        return self._heads(query, self.query_kernel, self.query_bias)

    def project_memory(self, value):
        """[B, S, D] -> keys [B, H, S, K] and values [B, H, S, value_dim]."""
        keys = self._heads(value, self.key_kernel, self.key_bias)
        return keys, self._heads(value, self.value_kernel, self.value_bias)

    def self_projection(self):
        """Query, key and value kernel side by side, and their biases or None."""
        kernels = [self.query_kernel, self.key_kernel, self.value_kernel]
        kernel = ops.concatenate([self._cast(kernel) for kernel in kernels], axis=1)
        if not self.use_bias:
            return kernel, None
        biases = [self.query_bias, self.key_bias, self.value_bias]
        return kernel, ops.concatenate([self._cast(bias) for bias in biases])

    def project_self(self, query, projection=None):
        """[B, T, D] -> queries, keys and values of self-attention, in one product.

        `projection` is `self_projection()`, where it was made before.
        """
        kernel, bias = projection or self.self_projection()
        keys, values = self.query_kernel.shape[1], self.value_kernel.shape[1]
        if keys != values:
            parts = ops.split(project(query, kernel, bias), [keys, 2 * keys], axis=-1)
            return tuple(self._split_heads(part) for part in parts)
        heads = 3, self.num_heads, keys // self.num_heads
        stacked = project(query, kernel, bias, sizes=heads)
        return tuple(ops.unstack(transpose(stacked, (2, 0, 3, 1, 4)), 3))

    def attend(self, query, key, value, mask=None):
        """Attention of projected heads and the output projection.

        Args: query [B, H, T, K], key [B, H, S, K], value [B, H, S, value_dim], mask
            broadcastable to [B, H, T, S]. Returns: [B, T, D], and the weights [B, H, T, S].
        """
        heads, weights = scaled_dot_product_attention(query, key, value, mask)
        heads = transpose(heads, (0, 2, 1, 3))  # [B, T, H, value_dim]
        return self._project(heads, self.output_kernel, self.output_bias, over=2), weights

    def _project(self, x, kernel, bias, **axes):
        bias = None if bias is None else self._cast(bias)
        return project(x, self._cast(kernel), bias, **axes)

    def _heads(self, x, kernel, bias):
        """[B, T, D] -> [B, H, T, size]."""
        sizes = self.num_heads, kernel.shape[1] // self.num_heads
        return transpose(self._project(x, kernel, bias, sizes=sizes), (0, 2, 1, 3))

    def _cast(self, weight):
        return ops.cast(weight, self.compute_dtype)

    def _split_heads(self, x):
        heads = self.num_heads, x.shape[-1] // self.num_heads
        x = ops.reshape(x, (*outer_shape(x), *heads))
        return transpose(x, (0, 2, 1, 3))  # [B, H, T, K]

    def compute_output_shape(self, query_shape, value_shape=None):
        return query_shape

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "use_bias": self.use_bias,
        }
