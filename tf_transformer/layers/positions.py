"""Positions: the paper's (3.5), and later ways for a model to know the order of tokens."""

import dataclasses
import math
from typing import Any

import keras
import numpy as np
from keras import ops

from tf_transformer.base.architecture import MAX_DISTANCE, POSITION_KINDS, PositionKind


class Positions:
    """The order of tokens as a model is told of it; this base class, "none", tells nothing.

    Another kind overrides what it needs, and `register` gives it a name. Embeddings call the
    first two methods, self-attention calls the others.

    Args:
        max_length: number of positions of a kind that is limited.

    Attributes:
        in_attention: whether the kind acts in self-attention, also in each step of decoding.
    """

    in_attention = False

    def __init__(self, max_length: int | None = None):
        self.max_length = max_length

    def build_embedding(self, layer: keras.layers.Layer, d_model: int) -> Any:
        """Creates the weight of an embedding, [max_length, D]; None if there is none."""
        return None

    def add_to_embeddings(self, x, positions):
        """Returns x [B, T, D], at these positions [T], with what encodes them."""
        return x

    def build_attention(self, layer: keras.layers.Layer, key_dim: int, value_dim: int) -> None:
        """Creates the weights of a `MultiHeadAttention`.

        Args:
            layer: the attention: `layer.add_weight` makes a weight of its own, and
                `layer.num_heads` is H.
            key_dim: K, the width of a head's queries and keys.
            value_dim: width of a head's values.
        """

    def rotate(self, heads, positions=None):
        """Returns queries or keys [B, H, T, K] at these positions [T]; 0, 1, ... if None."""
        return heads

    def add_to_scores(self, scores, queries, distances):
        """Returns the scores with what depends on the distances.

        A window of attention is computed in blocks: the heads' axis has those of the first
        head, then those of the second, and so on. `for_heads` makes values of each head fit.

        Scores are [B, H, T, S], within a window [B, H * blocks, T, S]; queries [B, H, T, K],
        divided by sqrt(K), likewise. A distance is the position of the key minus that of the
        query: int32 [T, S], or [S] if all queries are at one position.
        """
        return scores

    def add_to_values(self, values, weights, distances):
        """Returns weighted values with what depends on the distances; see `add_to_scores`.

        Values are [B, H, T, value_dim], weights [B, H, T, S] after dropout; within a window,
        the heads' axis is H * blocks.
        """
        return values


def for_heads(values, scores):
    """Repeats values [H, ...] of each head for its blocks in scores [B, H * blocks, T, S]."""
    return ops.repeat(values, ops.shape(scores)[1] // values.shape[0], axis=0)


class Sinusoidal(Positions):
    """Sines and cosines, added to the embeddings (paper 3.5)."""

    def add_to_embeddings(self, x, positions):
        return x + ops.cast(sinusoidal_positions(positions, x.shape[-1]), x.dtype)


class Learned(Positions):
    """A vector for each position, added to the embeddings (paper, Table 3, row E)."""

    def build_embedding(self, layer, d_model):
        self._table = layer.add_weight(
            name="position_embeddings",
            shape=(self.max_length, d_model),
            initializer=keras.initializers.RandomNormal(stddev=0.02),
        )
        return self._table

    def add_to_embeddings(self, x, positions):
        return x + ops.cast(ops.take(self._table, positions, axis=0), x.dtype)


class Relative(Positions):
    """Vectors for the distance of key and query, added to keys and values (Shaw et al. 2018).

    e = q (k + a) / sqrt(K) and z = sum over keys of alpha (v + b) (arXiv 1803.02155, equations
    3 and 4), where all heads of a layer share a and b, rows of two tables.

    Attributes:
        keys: a by distance, from -MAX_DISTANCE to MAX_DISTANCE, [2 MAX_DISTANCE + 1, K].
        values: b likewise, [2 MAX_DISTANCE + 1, value_dim].
    """

    in_attention = True

    def build_attention(self, layer, key_dim, value_dim):
        self.keys, self.values = (
            layer.add_weight(
                name=f"relative_{name}",
                shape=(2 * MAX_DISTANCE + 1, size),
                initializer="glorot_uniform",
                autocast=False,  # rows are looked up before casting, as in an embedding
            )
            for name, size in (("keys", key_dim), ("values", value_dim))
        )

    def add_to_scores(self, scores, queries, distances):
        rows = _rows(self.keys, distances, scores.dtype)  # [T, S, K] or [S, K]
        return scores + _times_own(queries, ops.swapaxes(rows, -1, -2))

    def add_to_values(self, values, weights, distances):
        return values + _times_own(weights, _rows(self.values, distances, weights.dtype))


def _rows(table, distances, dtype):
    rows = ops.clip(distances, -MAX_DISTANCE, MAX_DISTANCE) + MAX_DISTANCE
    return ops.cast(ops.take(table, rows, axis=0), dtype)


def _times_own(x, matrices):
    """Multiplies each row by its matrix: [..., T, K] and [T, K, S] or [K, S] -> [..., T, S]."""
    if len(matrices.shape) == 2:
        return ops.matmul(x, matrices)
    x = ops.moveaxis(x, -2, 0)
    length, *outer, inner = ops.shape(x)
    products = ops.matmul(ops.reshape(x, (length, math.prod(outer), inner)), matrices)
    products = ops.reshape(products, (length, *outer, ops.shape(matrices)[-1]))
    return ops.moveaxis(products, 0, -2)


class Rotary(Positions):
    """Queries and keys rotated by angles that grow with the position (Su et al. 2021).

    Pair i of K / 2 turns by pos / 10000^(2i/K) (arXiv 2104.09864, equation 15), so that a score
    depends on the distance of query and key. Entries i and i + K / 2 make a pair.
    """

    in_attention = True

    def rotate(self, heads, positions=None):
        half = heads.shape[-1] // 2
        if positions is None:
            positions = ops.arange(ops.shape(heads)[2], dtype="int32")
        rates = (10000.0 ** (-np.arange(half) / half)).astype("float32")
        angles = ops.cast(positions, "float32")[:, None] * rates  # [T, K / 2]
        cos = ops.cast(ops.cos(angles), heads.dtype)
        sin = ops.cast(ops.sin(angles), heads.dtype)
        one, other = ops.split(heads, 2, axis=-1)
        return ops.concatenate([one * cos - other * sin, other * cos + one * sin], axis=-1)


def positions_named(name: str, max_length: int | None = None) -> Positions:
    """Returns a kind of positions; raises ValueError if there is none of that name."""
    if name not in POSITION_KINDS:
        raise ValueError(
            f"`positions` must be one of {tuple(POSITION_KINDS)}. Received: positions={name!r}."
        )
    return POSITION_KINDS[name].layer_class(max_length)


def register(name: str, positions: type[Positions], **facts: Any) -> None:
    """Gives a kind of positions a name, for layers and for the setting of a model.

    Args:
        name: what `positions` of layers and models is set to.
        positions: the kind's class.
        **facts: the fields of `base.architecture.PositionKind`.
    """
    kind = POSITION_KINDS.get(name, PositionKind())
    POSITION_KINDS[name] = dataclasses.replace(kind, layer_class=positions, **facts)


register("sinusoidal", Sinusoidal)
register("learned", Learned)
register("relative", Relative)
register("rotary", Rotary)
register("none", Positions)


def sinusoidal_positions(positions, d_model: int):
    """Computes PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(...) (paper 3.5).

    Sine and cosine are interleaved, as in the paper. Computed in float32 whatever the policy:
    in bfloat16 the angles would be wrong from position 256 on.

    Args:
        positions: integer tensor [T].
        d_model: D, even.

    Returns:
        float32 [T, D].

    Example:
        >>> sinusoidal_positions(keras.ops.arange(1), d_model=4).numpy().tolist()
        [[0.0, 1.0, 0.0, 1.0]]
    """
    rates = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    angles = ops.cast(positions, "float32")[:, None] * rates.astype("float32")  # [T, D / 2]
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [T, D / 2, 2]
    return ops.reshape(pairs, (-1, d_model))
