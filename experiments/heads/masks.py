"""Masks of heads and of whole sublayers of a model (paper 3.2.2)."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from tf_transformer import Transformer

KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}
NETWORKS = {"encoder-ff": "encoder feed-forward", "decoder-ff": "decoder feed-forward"}


@dataclass(frozen=True, order=True)
class Head:
    """One head, counted from 1, or with number 0 the whole sublayer.

    `kind` is a key of KINDS or, for a feed-forward network, "encoder-ff" or "decoder-ff";
    `layer` is counted from 1.
    """

    kind: str
    layer: int
    number: int = 0

    def __str__(self) -> str:
        """Formats it, such as "cross 2.4" for head 4 of layer 2, "cross 2" for all of it."""
        return f"{self.kind} {self.layer}" + f".{self.number}" * bool(self.number)


class HeadMasks:
    """Masks heads and sublayers of a model, in training and in any kind of decoding.

    It zeroes weights, so that functions traced earlier are affected too. Nothing else may
    change these weights in the meantime.

    A head loses its rows of W^O and its columns of W^V. Either has a gradient of zero because
    the other is zero, so training leaves the head masked. Of a masked sublayer only the
    residual connection is left.

    `apply([])` restores the model. `heads` are all heads, ordered by kind, layer and number;
    `sublayers` are in the order in which they are computed.
    """

    def __init__(self, model: Transformer) -> None:
        layers: dict[Head, Any] = {}
        for number, layer in enumerate(model.encoder.layers, start=1):
            layers[Head("encoder", number)] = layer.self_attention
            layers[Head("encoder-ff", number)] = layer.feed_forward
        for number, layer in enumerate(model.decoder.layers, start=1):
            layers[Head("decoder", number)] = layer.self_attention
            layers[Head("cross", number)] = layer.cross_attention
            layers[Head("decoder-ff", number)] = layer.feed_forward
        self._num_heads = model.config.num_heads
        # Each weight with its value and its axis of heads.
        self._weights: dict[Head, list[tuple[Any, np.ndarray, int | None]]] = {}
        for key, layer in layers.items():
            weights: list[tuple[Any, int | None]]
            if key.kind in KINDS:
                output, value = layer.output_dense, layer.value_dense
                weights = [(output.kernel, 0), (value.kernel, 1), (value.bias, 0)]
            else:
                output, weights = layer.outer, [(layer.outer.kernel, None)]
            weights.append((output.bias, None))
            self._weights[key] = [
                (weight, weight.numpy(), axis) for weight, axis in weights if weight is not None
            ]
        self.sublayers = list(layers)
        self.heads = [
            Head(kind, key.layer, number)
            for kind in KINDS
            for key in layers
            if key.kind == kind
            for number in range(1, self._num_heads + 1)
        ]

    def apply(self, masked: Collection[Head]) -> None:
        """Masks these, and unmasks all others; ValueError if the model lacks one of them."""
        if unknown := set(masked) - {*self.heads, *self.sublayers}:
            raise ValueError(
                f"`masked` must be heads of the model. Received: {min(unknown)}, of a model "
                f"whose last head is {self.heads[-1]}."
            )
        for key, weights in self._weights.items():
            same = [head for head in masked if (head.kind, head.layer) == (key.kind, key.layer)]
            for weight, before, axis in weights:
                value = before.copy()
                if key in same:
                    value[...] = 0
                elif axis is not None:
                    size = value.shape[axis] // self._num_heads
                    by_head = np.moveaxis(value, axis, 0)  # a view
                    for head in same:
                        by_head[(head.number - 1) * size : head.number * size] = 0
                weight.assign(value)
