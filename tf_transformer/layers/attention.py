"""Scaled dot-product and multi-head attention (paper 3.2)."""

from functools import partial

import keras
import numpy as np
from keras import ops

from tf_transformer.fast.dropout import drop, dropped_levels
from tf_transformer.fast.tensors import (
    mask_of,
    project_from_heads,
    project_to_heads,
    project_to_qkv_heads,
    side_by_side,
)
from tf_transformer.layers.kernels import KernelLayer
from tf_transformer.layers.masking import causal_mask, combine_masks, join_masks

# Added in float32 whatever `floatx` is. Finite, so that a fully masked row does not become NaN.
MASKED_SCORE = np.float32(-1e9)


def scaled_dot_product_attention(query, key, value, mask=None, dropout=None):
    """Computes softmax(Q K^T / sqrt(d_k)) V (paper 3.2.1, equation 1), softmax in float32.

    Args:
        query: [B, H, T, K].
        key: [B, H, S, K].
        value: [B, H, S, value_dim].
        mask: boolean, broadcastable to [B, H, T, S], True where attention is allowed.
        dropout: function applied to the weights before they multiply the values.

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
class MultiHeadAttention(KernelLayer):
    """Multi-head attention (paper 3.2.2), called like `keras.layers.MultiHeadAttention`.

    Args:
        num_heads: number of heads H.
        key_dim: size per head of queries and keys; D / H if None.
        value_dim: size per head of values; D / H if None.
        kernel_initializer: initializer of the four projection kernels.
        use_bias: adds a bias to each projection; the paper has none.
        query_key_gain: factor on the initial kernels of queries and keys.
        value_gain: factor on the initial kernel of values.
        dropout: dropout rate of the attention weights; the paper has none there.

    Call arguments:
        query: [B, T, D].
        value: [B, S, D]; the query itself (self-attention) if None.
        key: [B, S, D]; the value if None.
        query_mask: boolean [B, T], True at real positions; used in self-attention only (without
            a value, or with the query as value). Keras fills in the masks attached to the
            tensors. Give masks by keyword.
        value_mask: boolean [B, S], True at real positions.
        key_mask: boolean [B, S], likewise.
        attention_mask: boolean [B or 1, T, S], True where attention is allowed.
        return_attention_scores: also returns the attention weights.
        use_causal_mask: hides later positions.

    Returns:
        [B, T, D]; with `return_attention_scores`, a pair of that output and the weights
        [B, H, T, S] before dropout.

    Raises:
        ValueError: if `num_heads` does not divide D while `key_dim` or `value_dim` is None, or
            if `key` is given without `value`.

    Example:
        >>> MultiHeadAttention(num_heads=8)(keras.random.normal((2, 5, 64))).shape
        (2, 5, 64)
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        kernel_initializer: str | keras.Initializer = "glorot_uniform",
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
        self.dropout = dropout
        self._dropped = dropped_levels(dropout)
        if self._dropped:
            self.seed_generator = keras.random.SeedGenerator()
        self.supports_masking = True

    def build(self, query_shape, value_shape=None, key_shape=None):
        d_model = query_shape[-1]
        value_width = d_model if value_shape is None else value_shape[-1]
        key_width = value_width if key_shape is None else key_shape[-1]
        if d_model % self.num_heads and None in (self.key_dim, self.value_dim):
            raise ValueError(
                "`num_heads` must divide `d_model`, unless key_dim and value_dim are given. "
                f"Received: num_heads={self.num_heads}, d_model={d_model}."
            )
        keys = self.num_heads * (self.key_dim or d_model // self.num_heads)
        values = self.num_heads * (self.value_dim or d_model // self.num_heads)
        self._add("query_kernel", (d_model, keys), self.query_key_gain)
        self._add("key_kernel", (key_width, keys), self.query_key_gain)
        self._add("value_kernel", (value_width, values), self.value_gain)
        self._add("output_kernel", (values, d_model))
        self.query_bias = self._add_bias("query_bias", keys)
        self.key_bias = self._add_bias("key_bias", keys)
        self.value_bias = self._add_bias("value_bias", values)
        self.output_bias = self._add_bias("output_bias", d_model)

    def _add(self, name, shape, gain=1.0):
        # A shared initialiser instance would give kernels of equal shape equal values.
        initializer = self.kernel_initializer.clone()

        def scaled(shape, dtype):
            return gain * initializer(shape, dtype=dtype)

        self.add_kernel(name, shape, scaled)

    def _add_bias(self, name, size):
        if not self.use_bias:
            return None
        return self.add_weight(name=name, shape=(size,), initializer="zeros")

    query_kernel = property(lambda self: self.kernel("query_kernel"))
    key_kernel = property(lambda self: self.kernel("key_kernel"))
    value_kernel = property(lambda self: self.kernel("value_kernel"))
    output_kernel = property(lambda self: self.kernel("output_kernel"))

    def __call__(self, query, value=None, *args, **kwargs):
        # Not in `call`: Keras may convert a tensor that is given twice to two tensors.
        if value is query and kwargs.get("query_mask") is not None:
            kwargs["value_mask"] = join_masks(kwargs["query_mask"], kwargs.get("value_mask"))
        given = () if value is None and not args else (value, *args)
        return super().__call__(query, *given, **kwargs)

    def call(
        self, query, value=None, key=None, query_mask=None, value_mask=None, key_mask=None,
        attention_mask=None, return_attention_scores=False, training=None,
        use_causal_mask=False,
    ):  # fmt: skip
        if value is None:
            if key is not None:
                raise ValueError("`key` needs a `value`. Received: value=None.")
            # Keras fills in `query_mask` only if the call has a second tensor.
            own = mask_of(query) if query_mask is None else query_mask
            keys = join_masks(own, value_mask, key_mask)
            heads = self.project_self(query)
        else:
            keys = join_masks(value_mask, key_mask)
            heads = (self.project_query(query), *self.project_memory(value, key))
        masks = [attention_mask]
        if use_causal_mask:
            masks.append(causal_mask(*(ops.shape(x)[2] for x in heads[:2])))
        mask = combine_masks(keys, *masks)
        outputs, weights = self.attend(*heads, mask=mask, training=training)
        return (outputs, weights) if return_attention_scores else outputs

    def project_query(self, query):
        """Projects [B, T, D] to queries [B, H, T, K]."""
        return project_to_heads(query, self.query_kernel, self.query_bias, self.num_heads)

    def project_memory(self, value, key=None):
        """Projects [B, S, D] to keys [B, H, S, K] and values [B, H, S, value_dim]."""
        key = value if key is None else key
        keys = project_to_heads(key, self.key_kernel, self.key_bias, self.num_heads)
        return keys, project_to_heads(value, self.value_kernel, self.value_bias, self.num_heads)

    def project_self(self, query, fused=None):
        """Projects [B, T, D] to the queries, keys and values of self-attention in one product.

        `fused` is the result of `fused_projection()`, which decoding computes once.
        """
        kernel, bias = fused or self.fused_projection()
        key_dim = self.query_kernel.shape[1] // self.num_heads
        return project_to_qkv_heads(query, kernel, bias, self.num_heads, key_dim)

    def fused_projection(self):
        """Concatenates the kernels of queries, keys and values, and their biases if any."""
        kernels = self.query_kernel, self.key_kernel, self.value_kernel
        biases = self.query_bias, self.key_bias, self.value_bias
        return side_by_side(kernels, biases, self.compute_dtype)

    def attend(self, query, key, value, mask=None, training=None):
        """Applies attention to projected heads, then the output projection.

        Takes queries [B, H, T, K], keys [B, H, S, K], values [B, H, S, value_dim] and a mask
        broadcastable to [B, H, T, S]; returns [B, T, D] and the weights [B, H, T, S].
        """
        dropout = None
        if training and self._dropped:
            dropout = partial(drop, levels=self._dropped, seed=self.seed_generator)
        heads, weights = scaled_dot_product_attention(query, key, value, mask, dropout)
        return project_from_heads(heads, self.output_kernel, self.output_bias), weights

    def compute_output_spec(
        self, query, value=None, *args, return_attention_scores=False, **kwargs
    ):
        outputs = keras.KerasTensor(query.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        return outputs, self.scores_spec(query, query if value is None else value)

    def scores_spec(self, query, value):
        """Returns the symbolic weights [B, H, T, S] of symbolic inputs."""
        shape = (query.shape[0], self.num_heads, query.shape[1], value.shape[1])
        return keras.KerasTensor(shape, dtype=self.compute_dtype)

    def compute_output_shape(self, query_shape, value_shape=None, key_shape=None):
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
            "dropout": self.dropout,
        }
