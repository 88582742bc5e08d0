"""Kinds of positions by name, which settings offer and layers compute."""

from dataclasses import dataclass


@dataclass(frozen=True)
class PositionKind:
    """Facts about a kind of positions for settings and the limits of a model."""

    help: str = ""  # what it does, in a few words
    limited: bool = False  # one vector for each of `max_length` positions, which need training
    even_key_dim: bool = False  # needs an even size per head of queries and keys


# `layers.positions.register` adds others.
POSITION_KINDS = {
    "sinusoidal": PositionKind("sines and cosines added to the embeddings"),
    "learned": PositionKind("vectors added to the embeddings", limited=True),
    "relative": PositionKind("vectors of distances added in self-attention"),
    "rotary": PositionKind("queries and keys of self-attention rotated", even_key_dim=True),
    "none": PositionKind("nothing"),
}
