"""Facts about the model that settings and layers share: sizes of heads, kinds of positions."""

from dataclasses import dataclass
from typing import Any

from tf_transformer.base.errors import UserError


def head_sizes(
    d_model: int, num_heads: int, key_dim: int | None = None, value_dim: int | None = None
) -> tuple[int, int]:
    """Returns the widths of a head's queries and keys, K, and of its values (paper 3.2.2).

    Each is d_model / num_heads if it is None; raises UserError if that is no whole number.

    Example:
        >>> head_sizes(512, 8, key_dim=16)
        (16, 64)
    """
    if d_model % num_heads and None in (key_dim, value_dim):
        raise UserError(
            "`num_heads` must divide `d_model`, unless key_dim and value_dim are given. "
            f"Received: num_heads={num_heads}, d_model={d_model}."
        )
    return key_dim or d_model // num_heads, value_dim or d_model // num_heads


# Longer distances count as this one; Shaw et al. found no gain from more vectors.
MAX_DISTANCE = 16


@dataclass(frozen=True)
class PositionKind:
    """A kind of positions: what settings and reports know of it, and its class.

    Attributes:
        help: what it does, in a few words.
        limited: has one vector for each of `max_length` positions, which need training.
        even_key_dim: needs an even size per head of queries and keys.
        distance_vectors: how many vectors each self-attention adds to keys, and to values.
        layer_class: a subclass of `layers.positions.Positions`; None before that is imported.
    """

    help: str = ""
    limited: bool = False
    even_key_dim: bool = False
    distance_vectors: int = 0
    layer_class: Any = None


# By name. `layers.positions.register` gives these their classes, and adds others.
POSITION_KINDS = {
    "sinusoidal": PositionKind("sines and cosines added to the embeddings"),
    "learned": PositionKind("vectors added to the embeddings", limited=True),
    "relative": PositionKind(
        "vectors of distances added in self-attention", distance_vectors=2 * MAX_DISTANCE + 1
    ),
    "rotary": PositionKind("queries and keys of self-attention rotated", even_key_dim=True),
    "none": PositionKind("nothing"),
}
