"""Finished hypotheses, as tensors and as text, and the length penalty that ranks them."""

from dataclasses import dataclass
from typing import NamedTuple

import tensorflow as tf


class Hypotheses(NamedTuple):
    """The N best hypotheses of B sentences, best first.

    Where a sentence has fewer than N (a limit of one token allows only the empty hypothesis),
    fillers follow: all PAD, length 0, the lowest float32 as log-probability and score.
    """

    tokens: tf.Tensor  # int32 [B, N, L], EOS included, PAD after it; L longest length limit
    lengths: tf.Tensor  # int32 [B, N], EOS counted
    log_probs: tf.Tensor  # float32 [B, N], natural logarithm, summed over the tokens
    scores: tf.Tensor  # float32 [B, N], log_probs / length_penalty(lengths, alpha)


@dataclass(frozen=True)
class Translation:
    """A translation and the score that ranks it; `str(translation)` is the text."""

    text: str
    score: float

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        figures = list(vars(self).items())[1:]
        words = [f"{name}={round(figure, 4)}" for name, figure in figures]
        return f"{type(self).__name__}({', '.join([repr(self.text), *words])})"


@dataclass(frozen=True, repr=False)
class Hypothesis(Translation):
    """A translation with its probability; `score` is log_prob / length_penalty(num_tokens).

    Attributes:
        log_prob: natural logarithm of the probability.
        num_tokens: number of tokens, EOS counted.
    """

    log_prob: float
    num_tokens: int


def length_penalty(length: tf.Tensor | int, alpha: float | tf.Tensor) -> tf.Tensor:
    """Returns ((5 + length) / 6) ** alpha, float32 (Wu et al. 2016, equation 14)."""
    return tf.pow((5.0 + tf.cast(length, tf.float32)) / 6.0, alpha)
