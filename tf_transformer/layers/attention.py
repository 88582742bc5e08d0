"""Scaled dot-product and multi-head attention (paper 3.2)."""

from functools import partial

import keras
import numpy as np
from keras import ops

from tf_transformer.fast.dropout import Dropout
from tf_transformer.fast.tensors import (
    mask_of,
    project_from_heads,
    project_to_heads,
    project_to_three_heads,
    side_by_side,
)
from tf_transformer.layers.masking import combine_masks

# Added in float32, whatever `floatx` is: finite, so that a fully masked row is not NaN.
MASKED_SCORE = np.float32(-1e9)


def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
    """softmax(Q K^T / sqrt(d_k)) V (paper 3.2.1, equation 1), the softmax in float32.

    Args:
        query: [B, H, T, K].
        key: [B, H, S, K].
        value: [B, H, S, value_dim].
        mask: boolean, broadcastable to [B, H, T, S], True where attention may look.
        dropout: function of the weights, applied before the values are weighted.

    Returns:
        The weighted values [B, H, T, value_dim] and the weights [B, H, T, S] before dropout.
    """
    query = query * ops.cast(query.shape[-1] ** -0.5, query.dtype)
    scores = ops.matmul(query, ops.swapaxes(key, -1, -2))  # [B, H, T, S]
    scores = ops.cast(scores, "float32")
    if mask is not None:
        scores = scores + ops.where(mask, np.float32(0), MASKED_SCORE)
    weights = ops.cast(ops.softmax(scores, axis=-1), value.dtype)
    dropped = dropout(weights) if dropout else weights
    return ops.matmul(dropped, value), weights


@keras.saving.register_keras_serializable(package="tf_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Multi-head attention (paper 3.2.2).

    Args:
        num_heads: number of heads H.
        key_dim, value_dim: sizes per head of queries and keys, and of values; D / H if None.
        kernel_initializer: of the four projections.
        use_bias: adds a bias to all four; the paper has none.
        query_key_gain, value_gain: factors of the initial kernels of queries and keys, and of
            values.
        dropout: rate on the attention weights; the paper has none there.

    Call arguments:
        query: [B, T, D].
        value: [B, S, D]; the query itself (self-attention) if None.
        query_mask, value_mask: boolean [B, T] and [B, S], True at real positions; Keras fills
            them in from tensors that carry a mask.
        attention_mask: boolean [B or 1, T, S], True where a query may look.

    Returns:
        [B, T, D].

    Raises:
        ValueError: if `num_heads` does not divide D and a size per head is None.

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
        query_key_gain: float = 1.0,
        value_gain: float = 1.0,
        dropout: float = 0.0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.use_bias = use_bias
        self.query_key_gain = query_key_gain
        self.value_gain = value_gain
        self.rate = dropout
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
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
        self.query_kernel = self._add_kernel(
            "query_kernel", (d_model, keys), self.query_key_gain
        )
        self.key_kernel = self._add_kernel(
            "key_kernel", (value_width, keys), self.query_key_gain
        )
        self.value_kernel = self._add_kernel(
            "value_kernel", (value_width, values), self.value_gain
        )
        self.output_kernel = self._add_kernel("output_kernel", (values, d_model))
        self.query_bias = self._add_bias("query_bias", keys)
        self.key_bias = self._add_bias("key_bias", keys)
        self.value_bias = self._add_bias("value_bias", values)
        self.output_bias = self._add_bias("output_bias", d_model)

    def _add_kernel(self, name, shape, gain=1.0):
        # A shared initialiser instance would fill equal shapes with equal numbers.
        initializer = self.kernel_initializer.clone()

        def scaled(shape, dtype):
            return gain * initializer(shape, dtype=dtype)

        return self.add_weight(name=name, shape=shape, initializer=scaled)

    def _add_bias(self, name, size):
        """Makes a bias of zeros [size]; None without `use_bias`."""
        if not self.use_bias:
            return None
        return self.add_weight(name=name, shape=(size,), initializer="zeros")

    def call(
        self,
        query,
        value=None,
        query_mask=None,
        value_mask=None,
        attention_mask=None,
        training=None,
    ):
        if value is None:
            # Keras fills in `query_mask` only beside a second tensor.
            key_mask = mask_of(query) if query_mask is None else query_mask
            heads = self.project_self(query)
        else:
            key_mask = value_mask
            heads = (self.project_query(query), *self.project_memory(value))
        mask = combine_masks(key_mask, attention_mask)
        return self.attend(*heads, mask=mask, training=training)[0]

    def project_query(self, query):
        """[B, T, D] -> queries [B, H, T, K]."""
        return project_to_heads(query, self.query_kernel, self.query_bias, self.num_heads)

    def project_memory(self, value):
        """[B, S, D] -> keys [B, H, S, K] and values [B, H, S, value_dim]."""
        keys = project_to_heads(value, self.key_kernel, self.key_bias, self.num_heads)
        return keys, project_to_heads(value, self.value_kernel, self.value_bias, self.num_heads)

    def project_self(self, query, fused=None):
        """[B, T, D] -> queries, keys and values of self-attention, in one product.

        `fused` is `fused_projection()`, computed once for many steps of decoding.
        """
        kernel, bias = fused or self.fused_projection()
        key_dim = self.query_kernel.shape[1] // self.num_heads
        return project_to_three_heads(query, kernel, bias, self.num_heads, key_dim)

    def fused_projection(self):
        """Joins the kernels, and the biases or None, of queries, keys and values."""
        kernels = self.query_kernel, self.key_kernel, self.value_kernel
        biases = self.query_bias, self.key_bias, self.value_bias
        return side_by_side(kernels, biases, self.compute_dtype)

    def attend(self, query, key, value, mask=None, training=None):
        """Attention of projected heads, then the output projection.

        Args: query [B, H, T, K], key [B, H, S, K], value [B, H, S, value_dim], mask
            broadcastable to [B, H, T, S]. Returns: [B, T, D], and the weights [B, H, T, S].
        """
        dropout = partial(self.dropout, training=training) if self.rate else None
        heads, weights = scaled_dot_product_attention(query, key, value, mask, dropout)
        return project_from_heads(heads, self.output_kernel, self.output_bias), weights

    def compute_output_shape(self, query_shape, value_shape=None):
        return query_shape

    def get_config(self):
        return super().get_config() | {
            "num_heads": self.num_heads,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "use_bias": self.use_bias,
            "query_key_gain": self.query_key_gain,
            "value_gain": self.value_gain,
            "dropout": self.rate,
        }
