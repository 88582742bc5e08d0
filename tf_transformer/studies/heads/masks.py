"""Masking of single heads: a masked head adds zero to its sublayer's output.

MultiHead(Q, K, V) = Concat(head_1, ..., head_H) W^O (paper 3.2.2) is a sum over heads, each
times its own rows of W^O: zeros in these rows remove exactly that head.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Self

from tf_transformer.models.transformer import Transformer

KINDS = {
    "encoder": "encoder self-attention",
    "decoder": "decoder self-attention",
    "cross": "cross-attention",
}


@dataclass(frozen=True, order=True)
class Head:
    """One head; `kind` is a key of KINDS, `layer` and `number` are counted from 1."""

    kind: str
    layer: int
    number: int

    def __str__(self) -> str:
        """Such as "cross 2.4": head 4 of layer 2."""
        return f"{self.kind} {self.layer}.{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Reads the output of `str`; ValueError for anything else."""
        kind, _, numbers = text.partition(" ")
        layer, number = map(int, numbers.split("."))
        return cls(kind, layer, number)


class HeadMasks:
    """Masks heads of a model, in training as in forced and cached decoding.

    Masking changes weights, so that functions traced earlier see it too. Nothing else may
    change these weights in the meantime.

    Args:
        model: any `Transformer`; `apply([])` restores it.

    Attributes:
        heads: all heads, in the order of KINDS, layers and numbers.
    """

    def __init__(self, model: Transformer) -> None:
        self._num_heads = model.config.num_heads
        self._kernels = _output_kernels(model)
        self._values = {key: kernel.numpy() for key, kernel in self._kernels.items()}
        self.heads = [
            Head(kind, layer, number)
            for kind, layer in self._kernels
            for number in range(1, self._num_heads + 1)
        ]

    def apply(self, masked: Collection[Head]) -> None:
        """Masks these heads and unmasks all others; ValueError for a head the model lacks."""
        if unknown := set(masked) - set(self.heads):
            raise ValueError(
                f"`masked` must be heads of the model. Received: {min(unknown)}, of a model "
                f"whose last head is {self.heads[-1]}."
            )
        for key, kernel in self._kernels.items():
            value = self._values[key].copy()  # [H * value_dim, D]
            rows_of_heads = value.reshape(self._num_heads, -1, value.shape[1])
            rows = [head.number - 1 for head in masked if (head.kind, head.layer) == key]
            rows_of_heads[rows] = 0
            kernel.assign(value)


def _output_kernels(model: Transformer) -> dict:
    """Returns W^O of each attention layer, by kind and layer number."""
    layers = {
        "encoder": [layer.self_attention for layer in model.encoder.layers],
        "decoder": [layer.self_attention for layer in model.decoder.layers],
        "cross": [layer.cross_attention for layer in model.decoder.layers],
    }
    return {
        (kind, number): attention.output_kernel
        for kind in KINDS
        for number, attention in enumerate(layers[kind], start=1)
    }
