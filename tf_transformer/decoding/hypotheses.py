"""Finished hypotheses, as tensors and as text, and the length penalty that ranks them."""

from typing import NamedTuple, Self

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


class Translation(str):
    """A translation: a `str` that carries what the model computed for it.

    Attributes:
        score: log_prob / length_penalty(num_tokens, alpha), by which the search ranks; that of
            samples is log_prob.
        log_prob: natural logarithm of its probability, summed over the tokens.
        num_tokens: number of tokens, EOS counted; 0 for the empty translation of a blank text.
    """

    score: float
    log_prob: float
    num_tokens: int

    def __new__(cls, text: str, score: float, log_prob: float, num_tokens: int) -> Self:
        """Returns `text` with its figures."""
        self = super().__new__(cls, text)
        self.score, self.log_prob, self.num_tokens = score, log_prob, num_tokens
        return self

    def __getnewargs__(self):
        """Returns the arguments to copy and unpickle it with."""
        return str(self), self.score, self.log_prob, self.num_tokens


def length_penalty(length: tf.Tensor | int, alpha: float | tf.Tensor) -> tf.Tensor:
    """Returns ((5 + length) / 6) ** alpha, float32 (Wu et al. 2016, equation 14)."""
    return tf.pow((5.0 + tf.cast(length, tf.float32)) / 6.0, alpha)
