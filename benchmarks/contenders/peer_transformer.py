"""A Transformer in PyTorch after fairseq's definition, independent of tf_transformer.

Layers, their order, dropout and initial weights are fairseq's (Ott et al. 2019, transformer).
Positions are the paper's: sines and cosines alternate, counted from 0, whereas fairseq puts all
sines first and counts from 2.

B batch, S source length, T target length, D d_model, H heads, V vocabulary.
"""

import math
import re

import numpy as np
import torch
from torch import Tensor, nn

PAD = 0
MASKED = -1e9  # finite, so that a row of only padding has no NaN


class Attention(nn.Module):
    """Multi-head attention, [B, T, D] to [B, S, D], with biases."""

    def __init__(self, d_model: int, num_heads: int) -> None:
        super().__init__()
        self.num_heads = num_heads
        self.query, self.key, self.value, self.output = (
            nn.Linear(d_model, d_model) for _ in range(4)
        )
        for projection in (self.query, self.key, self.value):  # biases keep PyTorch's defaults
            nn.init.xavier_uniform_(projection.weight, gain=1 / math.sqrt(2))
        nn.init.xavier_uniform_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, query: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        """Attends where `mask`, [B, 1, 1 or T, S], is true."""
        q, k, v = (
            projection(x).unflatten(-1, (self.num_heads, -1)).transpose(1, 2)  # [B, H, T, D/H]
            for projection, x in ((self.query, query), (self.key, memory), (self.value, memory))
        )
        scores = (q * q.shape[-1] ** -0.5) @ k.transpose(-1, -2)
        weights = torch.softmax(scores.masked_fill(~mask, MASKED), dim=-1)
        return self.output((weights @ v).transpose(1, 2).flatten(2))


class FeedForward(nn.Module):
    """Two products with ReLU between them."""

    def __init__(self, d_model: int, d_ff: int) -> None:
        super().__init__()
        self.inner, self.outer = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
        for layer in (self.inner, self.outer):
            nn.init.xavier_uniform_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, x: Tensor) -> Tensor:
        """Returns [B, T, D]."""
        return self.outer(torch.relu(self.inner(x)))


class Block(nn.Module):
    """A layer of the encoder, or of the decoder if it attends to the encoder too."""

    def __init__(self, model: dict, cross: bool) -> None:
        super().__init__()
        width, heads = model["d_model"], model["num_heads"]
        self.norm_first = model["norm_first"]
        self.dropout = nn.Dropout(model["dropout"])
        self.self_attention = Attention(width, heads)
        self.self_attention_norm = _norm(model)
        if cross:
            self.cross_attention = Attention(width, heads)
            self.cross_attention_norm = _norm(model)
        self.feed_forward = FeedForward(width, model["d_ff"])
        self.feed_forward_norm = _norm(model)

    def forward(self, x: Tensor, mask: Tensor, memory=None, memory_mask=None) -> Tensor:
        """Returns [B, T, D]; `memory` is the encoder's output."""
        x = self._around(x, self.self_attention_norm, lambda y: self.self_attention(y, y, mask))
        if memory is not None:
            attend = self.cross_attention
            x = self._around(
                x, self.cross_attention_norm, lambda y: attend(y, memory, memory_mask)
            )
        return self._around(x, self.feed_forward_norm, self.feed_forward)

    def _around(self, x: Tensor, norm: nn.LayerNorm, sublayer) -> Tensor:
        """Adds the residual connection and the norm, before or after, to a sublayer."""
        if self.norm_first:
            return x + self.dropout(sublayer(norm(x)))
        return norm(x + self.dropout(sublayer(x)))


class PeerTransformer(nn.Module):
    """Encoder and decoder that share their embeddings with the output projection.

    Args:
        model: arguments of ModelConfig; only the sizes, `dropout`, `norm_first` and
            `norm_epsilon` are used.
    """

    def __init__(self, model: dict) -> None:
        super().__init__()
        width = model["d_model"]
        self.embedding = nn.Embedding(model["vocab_size"], width)
        nn.init.normal_(self.embedding.weight, std=width**-0.5)
        self.dropout = nn.Dropout(model["dropout"])
        numbers = range(model["num_layers"])
        self.encoder = nn.ModuleList(Block(model, cross=False) for _ in numbers)
        self.decoder = nn.ModuleList(Block(model, cross=True) for _ in numbers)
        ends = [_norm(model) if model["norm_first"] else nn.Identity() for _ in range(2)]
        self.encoder_norm, self.decoder_norm = ends

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        """Returns logits: int64 [B, S], [B, T] -> [B, T, V]."""
        memory_mask = (source != PAD)[:, None, None]
        memory = self._embed(source)
        for layer in self.encoder:
            memory = layer(memory, memory_mask)
        memory = self.encoder_norm(memory)
        length = target.shape[1]
        causal = torch.ones(length, length, dtype=torch.bool).tril()
        mask = (target != PAD)[:, None, None] & causal
        x = self._embed(target)
        for layer in self.decoder:
            x = layer(x, mask, memory, memory_mask)
        return self.decoder_norm(x) @ self.embedding.weight.T

    def _embed(self, ids: Tensor) -> Tensor:
        width = self.embedding.weight.shape[1]
        rates = 10000.0 ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angles = torch.arange(ids.shape[1])[:, None] * rates  # [T, D / 2]
        positions = torch.stack([angles.sin(), angles.cos()], dim=-1).flatten(1)
        return self.dropout(self.embedding(ids) * width**0.5 + positions.float())


def _norm(model: dict) -> nn.LayerNorm:
    return nn.LayerNorm(model["d_model"], eps=model["norm_epsilon"])


def our_name(name: str) -> str:
    """Returns the package's path of a weight of the peer."""
    *path, last = re.sub(r"\.(\d+)\.", r".layer_\1.", name).split(".")
    if path == ["embedding"]:
        return "embedding/embeddings"
    if path[-1].endswith("norm"):
        part = {"weight": "gamma", "bias": "beta"}[last]
        return "/".join([*path, "norm", part]).replace("coder_norm/norm", "coder/norm")
    last = {"weight": "kernel", "bias": "bias"}[last]
    separator = "/" if "feed_forward" in path else "_"
    return "/".join(path) + separator + last


def assign(peer: PeerTransformer, arrays: dict[str, np.ndarray]) -> None:
    """Assigns all weights of a checkpoint of the package to the peer.

    If the package's attention has no biases, the peer's are set to 0.
    """
    left = dict(arrays)
    with torch.no_grad():
        for name, weight in peer.named_parameters():
            ours = our_name(name)
            absent = np.zeros(weight.shape, "float32") if "attention/" in ours else None
            value = torch.tensor(left.pop(f"model/{ours}", absent))
            weight.copy_(value.T if ours.endswith("kernel") else value)
    if left:
        raise ValueError(f"The peer lacks these weights: {sorted(left)}.")
