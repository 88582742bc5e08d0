"""Scaled dot-product and multi-head attention (paper 3.2), and its masks."""

from functools import partial, reduce

import keras
import numpy as np
from keras import ops

from tf_transformer.base.architecture import head_sizes
from tf_transformer.fast.dropout import drop, dropout_levels
from tf_transformer.fast.keras_hooks import mask_of
from tf_transformer.fast.projections import (
    project_from_heads,
    project_to_heads,
    project_to_qkv_heads,
    side_by_side,
)
from tf_transformer.layers.feed_forward import Dense, require_positive
from tf_transformer.layers.positions import Positions, positions_named

# Added in float32 whatever `floatx` is. Finite, so that a fully masked row does not become NaN.
MASKED_SCORE = np.float32(-1e9)


# --- Boolean masks, True at visible positions (paper 3.2.3) ------------------------------


def padding_mask(ids, pad_id: int = 0):
    """Returns a mask that is True at real tokens: ids [B, S] -> [B, S].

    Example:
        >>> padding_mask(keras.ops.array([[5, 3, 0]])).numpy().tolist()
        [[True, True, False]]
    """
    return ops.not_equal(ids, pad_id)


def causal_mask(length, key_length=None):
    """Returns [1, T, S], True where the key is not later than the query; S is T by default.

    Example:
        >>> causal_mask(2).numpy().tolist()
        [[[True, False], [True, True]]]
    """
    queries = ops.arange(length, dtype="int32")
    keys = queries if key_length is None else ops.arange(key_length, dtype="int32")
    return queries[None, :, None] >= keys[None, None, :]


def additive(mask):
    """Returns what is added to the scores: 0 where a boolean mask is True, else -1e9.

    A mask that is floating already stays as it is: decoding makes one for all layers.
    """
    if keras.backend.standardize_dtype(mask.dtype) != "bool":
        return mask
    return ops.where(mask, np.float32(0), MASKED_SCORE)


def join_masks(*masks):
    """Returns the logical AND of broadcastable masks, ignoring None; None if all are None."""
    present = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    return reduce(ops.logical_and, present) if present else None


def combine_masks(key_mask=None, *attention_masks):
    """Joins masks into one that broadcasts to scores [B, H, T, S]; None if all are None.

    `key_mask` is [B, S]; attention masks are [B or 1, T, S], or [B or 1, H or 1, T, S]. Another
    rank raises ValueError: [B, S] and [T, S] look alike.
    """
    spread = []
    for mask in attention_masks:
        shape = () if mask is None else tuple(mask.shape)
        if mask is not None and len(shape) not in (3, 4):
            raise ValueError(
                "`attention_mask` must have shape [B or 1, T, S]: give mask[:, None, :] for a "
                f"padding mask [B, S], mask[None] for [T, S]. Received: shape={shape}."
            )
        spread.append(ops.expand_dims(mask, 1) if len(shape) == 3 else mask)
    if key_mask is not None:
        key_mask = ops.expand_dims(key_mask, (1, 2))
    return join_masks(key_mask, *spread)


# --- Scaled dot-product attention, whole and within a window -----------------------------


def scaled_dot_product_attention(
    query, key, value, mask=None, dropout=None, positions=None, distances=None
):
    """Computes softmax(Q K^T / sqrt(d_k)) V (paper 3.2.1, equation 1), softmax in float32.

    Args:
        query: [B, H, T, K].
        key: [B, H, S, K], or a tuple of parts of it along S, which are not joined.
        value: [B, H, S, value_dim], or likewise.
        mask: boolean, broadcastable to [B, H, T, S], True where attention is allowed; or what
            `additive` returns for it.
        dropout: function applied to the weights before they multiply the values.
        positions: the `Positions` that scores and values depend on; None for none.
        distances: what they take as `distances`; None if T and S are both positions 0, 1, ...

    Returns:
        The weighted values [B, H, T, value_dim] and the weights [B, H, T, S] before dropout.

    Example:
        >>> heads = keras.random.normal((1, 2, 3, 4))
        >>> outputs, weights = scaled_dot_product_attention(heads, heads, heads)
        >>> keras.ops.shape(outputs), keras.ops.shape(weights)
        ((1, 2, 3, 4), (1, 2, 3, 3))
    """
    positions = positions or Positions()
    keys, values = (x if isinstance(x, tuple) else (x,) for x in (key, value))
    if positions.in_attention and distances is None:
        queries, steps = (ops.arange(ops.shape(x)[-2], dtype="int32") for x in (query, key))
        distances = steps - queries[:, None]
    query = query * ops.cast(query.shape[-1] ** -0.5, query.dtype)
    scores = [ops.matmul(query, ops.swapaxes(part, -1, -2)) for part in keys]
    scores = ops.concatenate(scores, axis=-1) if scores[1:] else scores[0]  # [B, H, T, S]
    scores = ops.cast(positions.add_to_scores(scores, query, distances), "float32")
    if mask is not None:
        scores = scores + additive(mask)
    weights = ops.cast(ops.softmax(scores, axis=-1), values[0].dtype)
    used = dropout(weights) if dropout else weights
    if len(values) == 1:
        outputs = ops.matmul(used, *values)
    else:
        # Indexing would be several times as slow in LiteRT.
        first = ops.shape(values[0])[2]
        ends = ((0, 0, 0, 0), (-1, -1, -1, first)), ((0, 0, 0, first), (-1, -1, -1, -1))
        one, other = (ops.slice(used, *each) for each in ends)
        outputs = ops.matmul(one, values[0]) + ops.matmul(other, values[1])
    return positions.add_to_values(outputs, used, distances), weights


def windowed_attention(
    query, key, value, window, key_mask=None, causal=False, dropout=None, positions=None
):
    """Computes `scaled_dot_product_attention` to keys at most `window` positions away.

    In time and memory proportional to T * window: a block of `window` queries sees the keys of
    its own block and of the blocks beside it (Beltagy et al. 2020, arXiv 2004.05150, 3.1). A
    block is shorter if T is.

    Takes queries and keys [B, H, T, K], values [B, H, T, value_dim] and a boolean `key_mask`
    [B, T], True at real positions; `causal` hides later ones. Returns [B, H, T, value_dim].
    """
    length = ops.shape(query)[2]
    if isinstance(length, int):
        size = max(1, min(length, window))
    else:
        size = ops.maximum(1, ops.minimum(length, window))
    blocks = -(-length // size)
    seen = 2 if causal else 3  # blocks of keys: the one before, its own, the one after

    def padded(x, before, after):
        ends = before * size, blocks * size - length + after * size
        return ops.pad(x, ((0, 0), (0, 0), ends, (0, 0)))

    def in_blocks(x):  # [B, H, blocks * size, K] -> [B, H * blocks, size, K]
        return ops.reshape(x, (ops.shape(x)[0], x.shape[1] * blocks, size, x.shape[-1]))

    def with_neighbours(x):  # [B, H, T, K] -> [B, H * blocks, seen * size, K]
        x = padded(x, 1, seen - 2)
        starts = [i * size for i in range(seen)]
        shifted = [in_blocks(x[:, :, start : start + blocks * size]) for start in starts]
        return ops.concatenate(shifted, axis=2)

    # Distances of the keys that a block sees: [size, seen * size].
    steps = ops.arange(size, dtype="int32")[:, None]
    distances = ops.arange(seen * size, dtype="int32") - size - steps
    near = ops.abs(distances) <= window
    near = ops.logical_and(near, distances <= 0) if causal else near
    # What is real among them, not filled up: [B, H * blocks, 1, seen * size].
    real = ops.ones_like(query[..., :1])  # [B, H, T, 1]
    if key_mask is not None:
        real = real * ops.cast(ops.expand_dims(key_mask, (1, 3)), real.dtype)
    mask = ops.logical_and(near, ops.swapaxes(with_neighbours(real) > 0, -1, -2))
    outputs, _ = scaled_dot_product_attention(
        in_blocks(padded(query, 0, 0)), with_neighbours(key), with_neighbours(value), mask,
        dropout, positions, distances,
    )  # fmt: skip
    shape = ops.shape(value)[0], value.shape[1], blocks * size, value.shape[-1]
    return ops.reshape(outputs, shape)[:, :, :length]


# --- The layer ---------------------------------------------------------------------------


@keras.saving.register_keras_serializable(package="tf_transformer")
class MultiHeadAttention(keras.layers.Layer):
    """Multi-head attention (paper 3.2.2), called like `keras.layers.MultiHeadAttention`.

    Kernels are initially Xavier uniform, times a gain for queries, keys and values.

    Args:
        num_heads: number of heads H.
        key_dim: size per head of queries and keys; D / H if None.
        value_dim: size per head of values; D / H if None.
        use_bias: adds a bias to each projection; the paper has none.
        query_key_gain: factor on the initial kernels of queries and keys.
        value_gain: factor on the initial kernel of values.
        dropout: dropout rate of the attention weights; the paper has none there.
        positions: a kind of `layers.positions`. One that acts in attention is for
            self-attention only; others act in the embedding.
        attention_window: how many positions to each side self-attention sees; 0 for all.
        **kwargs: name, dtype and other arguments of any Keras layer.

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

    Attributes:
        query_dense: `Dense` from D to the queries of all heads, H * K.
        key_dense: `Dense` from D to the keys of all heads, H * K.
        value_dense: `Dense` from D to the values of all heads, H * value_dim.
        output_dense: `Dense` from the outputs of all heads, H * value_dim, to D.

    Raises:
        ValueError: if a size is below 1, if `num_heads` does not divide D while `key_dim` or
            `value_dim` is None, or if `key` is given without `value`, or a `value` with
            positions that act in attention or a window.

    Example:
        >>> layer = MultiHeadAttention(num_heads=8)
        >>> keras.ops.shape(layer(keras.random.normal((2, 5, 64))))
        (2, 5, 64)
    """

    def __init__(
        self,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        use_bias: bool = False,
        query_key_gain: float = 1.0,
        value_gain: float = 1.0,
        dropout: float = 0.0,
        positions: str = "sinusoidal",
        attention_window: int = 0,
        **kwargs,
    ):
        super().__init__(**kwargs)
        require_positive(num_heads=num_heads, key_dim=key_dim, value_dim=value_dim)
        self.num_heads = num_heads
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.use_bias = use_bias
        self.query_key_gain = query_key_gain
        self.value_gain = value_gain
        self.dropout = dropout
        self.positions = positions
        self.position_kind = positions_named(positions)
        self.attention_window = attention_window
        self._dropout_levels = dropout_levels(dropout)
        if self._dropout_levels:
            self.seed_generator = keras.random.SeedGenerator()
        self.supports_masking = True

    def build(self, query_shape, value_shape=None, key_shape=None):
        value_shape = value_shape or query_shape
        key_shape = key_shape or value_shape
        d_model = query_shape[-1]
        key_dim, value_dim = head_sizes(d_model, self.num_heads, self.key_dim, self.value_dim)
        keys, values = self.num_heads * key_dim, self.num_heads * value_dim
        self.query_dense = self._dense("query", keys, query_shape, self.query_key_gain)
        self.key_dense = self._dense("key", keys, key_shape, self.query_key_gain)
        self.value_dense = self._dense("value", values, value_shape, self.value_gain)
        outputs_shape = (*query_shape[:-1], values)
        self.output_dense = self._dense("output", d_model, outputs_shape, gain=1.0)
        self.position_kind.build_attention(self, key_dim, value_dim)

    def _dense(self, name, units, inputs_shape, gain):
        # Xavier uniform is VarianceScaling of scale 1, the square of the gain.
        dense = Dense(
            units,
            use_bias=self.use_bias,
            kernel_initializer=keras.initializers.VarianceScaling(
                gain**2, mode="fan_avg", distribution="uniform"
            ),
            name=name,
            dtype=self.dtype_policy,
            trainable=self.trainable,
        )
        dense.build(inputs_shape)
        return dense

    def __call__(self, query, value=None, *args, **kwargs):
        # Not in `call`: Keras may convert a tensor that is given twice to two tensors.
        if value is query and kwargs.get("query_mask") is not None:
            kwargs["value_mask"] = join_masks(kwargs["query_mask"], kwargs.get("value_mask"))
        if value is None and not args:
            return super().__call__(query, **kwargs)
        return super().__call__(query, value, *args, **kwargs)

    def call(
        self, query, value=None, key=None, query_mask=None, value_mask=None, key_mask=None,
        attention_mask=None, return_attention_scores=False, training=None,
        use_causal_mask=False,
    ):  # fmt: skip
        if value is None and key is not None:
            raise ValueError("`key` needs a `value`. Received: value=None.")
        # Heads: queries [B, H, T, K], keys [B, H, S, K] and values [B, H, S, value_dim].
        if value is None:
            # Keras fills in `query_mask` only if the call has a second tensor.
            query_mask = mask_of(query) if query_mask is None else query_mask
            key_mask = join_masks(query_mask, value_mask, key_mask)
            heads = self.project_self(query)
            outputs, weights = self.attend_to_self(
                *heads, key_mask, attention_mask, use_causal_mask, training,
                return_attention_scores,
            )  # fmt: skip
        else:
            if self.position_kind.in_attention or self.attention_window:
                raise ValueError(
                    "`positions` and `attention_window` are for self-attention: leave out "
                    f"`value`. Received: positions={self.positions!r}, "
                    f"attention_window={self.attention_window}."
                )
            key_mask = join_masks(value_mask, key_mask)
            queries = self.project_query(query)
            keys, values = self.project_memory(value, key)
            # The keys that each query may attend to, broadcastable to [B, H, T, S].
            masks = [attention_mask]
            if use_causal_mask:
                masks.append(causal_mask(ops.shape(queries)[2], ops.shape(keys)[2]))
            mask = combine_masks(key_mask, *masks)
            # Equation 1 in every head; then the heads side by side, and the output projection.
            outputs, weights = self.attend(queries, keys, values, mask, training)
        return (outputs, weights) if return_attention_scores else outputs

    def project_self(self, x, fused=None, positions=None):
        """Projects [B, T, D] to the queries, keys and values of self-attention in one product.

        `fused` is the result of `fused_projection()`, which decoding computes once; `positions`
        [T] are those of x, 0, 1, ... if None.
        """
        kernel, bias = fused or self.fused_projection()
        key_dim = self.query_dense.units // self.num_heads
        heads = project_to_qkv_heads(x, kernel, bias, self.num_heads, key_dim)
        queries, keys, values = heads
        return (
            self.position_kind.rotate(queries, positions),
            self.position_kind.rotate(keys, positions),
            values,
        )

    def fused_projection(self):
        """Concatenates the kernels of queries, keys and values, and their biases if any."""
        parts = self.query_dense, self.key_dense, self.value_dense
        kernels, biases = [part.kernel for part in parts], [part.bias for part in parts]
        return side_by_side(kernels, biases, self.compute_dtype)

    def project_query(self, query):
        """Projects [B, T, D] to queries [B, H, T, K]."""
        return self._to_heads(query, self.query_dense)

    def project_memory(self, value, key=None):
        """Projects [B, S, D] to keys [B, H, S, K] and values [B, H, S, value_dim]."""
        key = value if key is None else key
        return self._to_heads(key, self.key_dense), self._to_heads(value, self.value_dense)

    def _to_heads(self, x, dense):
        return project_to_heads(x, dense.kernel, dense.bias, self.num_heads)

    def attend(self, queries, keys, values, mask=None, training=None, distances=None):
        """Applies attention to projected heads, then the output projection.

        Takes queries [B, H, T, K], keys [B, H, S, K], values [B, H, S, value_dim], a mask
        broadcastable to [B, H, T, S], and the `distances` of `Positions.add_to_scores`; returns
        [B, T, D] and the weights [B, H, T, S].
        """
        heads, weights = scaled_dot_product_attention(
            queries, keys, values, mask, self._dropout(training), self.position_kind, distances
        )
        return self._from_heads(heads), weights

    def attend_to_self(
        self, queries, keys, values, key_mask=None, attention_mask=None, causal=False,
        training=None, with_weights=True,
    ):  # fmt: skip
        """Applies self-attention to the projected heads of whole sequences.

        Takes heads and returns outputs as `attend` does; `key_mask` is [B, T], `attention_mask`
        [B or 1, T, T]. With a window, the weights are None unless they are asked for.
        """
        length, window = ops.shape(queries)[2], self.attention_window
        if window and attention_mask is None and not with_weights:
            heads = windowed_attention(
                queries, keys, values, window, key_mask, causal, self._dropout(training),
                self.position_kind,
            )  # fmt: skip
            return self._from_heads(heads), None
        masks = [attention_mask]
        if causal:
            masks.append(causal_mask(length))
        if window:
            steps = ops.arange(length, dtype="int32")
            masks.append((ops.abs(steps - steps[:, None]) <= window)[None])
        return self.attend(queries, keys, values, combine_masks(key_mask, *masks), training)

    def _dropout(self, training):
        if training and self._dropout_levels:
            return partial(drop, levels=self._dropout_levels, seed=self.seed_generator)
        return None

    def _from_heads(self, heads):
        return project_from_heads(heads, self.output_dense.kernel, self.output_dense.bias)

    def enable_lora(self, rank: int, **options) -> None:
        """Adapts the four kernels; arguments are those of `keras.layers.Dense.enable_lora`."""
        if not self.built:
            raise ValueError(f"`enable_lora` needs a built layer. Received: {self.name}.")
        for dense in (self.query_dense, self.key_dense, self.value_dense, self.output_dense):
            dense.enable_lora(rank, **options)

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
        names = (
            "num_heads", "key_dim", "value_dim", "use_bias", "query_key_gain", "value_gain",
            "dropout", "positions", "attention_window",
        )  # fmt: skip
        return super().get_config() | {name: getattr(self, name) for name in names}
