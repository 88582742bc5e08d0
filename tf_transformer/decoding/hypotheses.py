"""Hypotheses, state, score and its bound, which the searches in TensorFlow and NumPy share.

Nothing here imports TensorFlow. B batch, W beam width, N hypotheses returned, L longest length
limit, t steps taken.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from tf_transformer.config import BOS_ID, PAD_ID
from tf_transformer.decoding.rules import Nest, Tensor

Cache = Any  # a nest of tensors whose dimension 0 is B
BANNED_IDS = (PAD_ID, BOS_ID)  # never generated


class Hypotheses(NamedTuple):
    """The N best finished hypotheses of B sentences, best first.

    Where a sentence has fewer than N (a limit of one token allows only the empty hypothesis),
    fillers follow: all PAD, length 0, the lowest float32 as log-probability and score.
    """

    tokens: Tensor  # int32 [B, N, L], EOS included, PAD after it
    lengths: Tensor  # int32 [B, N], EOS counted
    log_probs: Tensor  # float32 [B, N], natural logarithm, summed over the tokens
    scores: Tensor  # float32 [B, N], log_probs / length_penalty(lengths, alpha)


class State(NamedTuple):
    """The sentences still being searched, after t steps."""

    rows: Tensor  # int32 [B], row of each sentence in the caller's batch
    max_lengths: Tensor  # int32 [B], length limits
    contexts: tuple[Nest, ...]  # of each rule, [B, ...]
    rule_states: tuple[Nest, ...]  # of each rule, [B, W, ...], of the alive beams
    settings: dict[str, Tensor]  # of each sentence, [B, ...]: alpha, or keys of its draws
    last_tokens: Tensor  # int32 [B, W], input of the next step: BOS when t = 0
    tokens: Tensor  # int32 [B, W, t], of the alive beams
    log_probs: Tensor  # float32 [B, W], of the alive beams, best first
    ancestry: Tensor  # int32 [B, W, t], beam in which each past step was computed
    finished: Hypotheses  # the N best so far
    cache: Cache


def length_penalty(length: Tensor | float, alpha: Tensor | float) -> Tensor:
    """Returns ((5 + length) / 6) ** alpha (Wu et al. 2016, equation 14), of float lengths.

    Example:
        >>> length_penalty(7.0, alpha=1.0)
        2.0
    """
    return ((5.0 + length) / 6.0) ** alpha


def unbeatable(
    scores: Tensor, log_probs: Tensor, limits: Tensor, alpha: Tensor | float
) -> Tensor:
    """Returns bool [B, N]: whether no alive beam can still get a better score than these.

    A beam's log-probability can only fall, and the length penalty is largest at the length
    limit: together they bound its score. Rules only remove hypotheses, so the bound holds.
    Takes scores [B, N] of finished hypotheses, `log_probs` [B, W] of the alive beams, best
    first, length limits [B, 1], and the exponent of the penalty, which may be [B, 1] or [N].
    """
    return scores >= log_probs[:, :1] / length_penalty(limits, alpha)


def map_structure(function: Callable[[Tensor], Tensor], nest: Nest) -> Nest:
    """Returns a nest with the function of each of its tensors, as `tf.nest.map_structure`."""
    if isinstance(nest, dict):
        return {name: map_structure(function, part) for name, part in nest.items()}
    if isinstance(nest, tuple | list):
        parts = [map_structure(function, part) for part in nest]
        return type(nest)(*parts) if hasattr(nest, "_fields") else type(nest)(parts)
    return function(nest)
