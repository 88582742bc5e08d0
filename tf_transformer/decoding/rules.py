"""Rules for the next token: length limits, a forced prefix, no repeated n-gram, a grammar.

B batch, W beam width, V vocabulary, P longest prefix, t steps taken so far, R forbidden tokens.
A rule that is off has no entry, and adds no operation to the search.
"""

from collections.abc import Hashable, Sequence
from typing import NamedTuple, NotRequired, Protocol, TypedDict

import numpy as np
import tensorflow as tf

from tf_transformer.config import PAD_ID


class Rules(TypedDict):
    """Rules of each sentence, independent of the others in its batch."""

    max_lengths: tf.Tensor  # int32 [B], EOS counted
    min_lengths: NotRequired[tf.Tensor]  # int32 [B], EOS counted
    prefix: NotRequired[tf.Tensor]  # int32 [B, P + 1], the first tokens, PAD after them
    alpha: NotRequired[tf.Tensor]  # float32 [B], exponents of the length penalty
    context: NotRequired[tf.Tensor]  # [B, N, G], a grammar's context of each source
    keys: NotRequired[tf.Tensor]  # int32 [B, 2], keys of each sentence's random numbers


class NextToken(NamedTuple):
    """Constraints on the next token; None for a rule that is off."""

    must_end: tf.Tensor  # bool [B], EOS must come
    must_continue: tf.Tensor | None = None  # bool [B], EOS must not come
    forced: tf.Tensor | None = None  # int32 [B], the token that must come, PAD if any may
    forbidden: tf.Tensor | None = None  # int32 [B, W, R], tokens that must not come, or PAD
    allowed: tf.Tensor | None = None  # bool [B, W, V], tokens that a grammar allows


class Grammar(Hashable, Protocol):
    """Restricts a search to sequences that are well-formed for their source.

    It is hashable, so that the search compiled for it can be cached.
    """

    def context(self, sentences: Sequence[str]) -> np.ndarray:
        """Encodes the facts it needs about a batch of sources: bool [B, N, G], any N and G."""

    def __call__(self, tokens: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
        """Returns the tokens that may follow `tokens`, int32 [B, W, t]: bool [B, W, V].

        At least one is neither PAD nor BOS, except for an impossible beam, whose tokens are
        arbitrary.
        """


def make_rules(
    max_lengths: tf.Tensor,
    min_lengths: tf.Tensor | None = None,
    prefix: tf.Tensor | None = None,
    no_repeat_ngram: int = 0,
    context: tf.Tensor | None = None,
) -> Rules:
    """Returns the rules of a search; raises ValueError if `no_repeat_ngram` is negative.

    EOS at the length limit takes precedence over a prefix, and a prefix over the other rules.
    If they exclude every hypothesis of a sentence, it gets only fillers, see `Hypotheses`.

    Args:
        max_lengths: int32 [B], length limits of at least 1 token, EOS counted.
        min_lengths: int32 [B], minimum numbers of tokens, EOS counted; 1 if None.
        prefix: int32 [B, P], tokens that every hypothesis of a sentence begins with, padded
            with PAD; a row may be empty. They count in length and log-probability. A prefix
            that reaches the limit is cut to leave room for EOS.
        no_repeat_ngram: size of n-grams that no hypothesis repeats, unless its prefix does; 0
            allows all. It is only validated here.
        context: bool [B, N, G], a grammar's `context` of the sources.
    """
    if no_repeat_ngram < 0:
        raise ValueError(
            "`no_repeat_ngram` must not be negative. "
            f"Received: no_repeat_ngram={no_repeat_ngram}."
        )
    tf.debugging.assert_greater_equal(max_lengths, 1, "`max_lengths` must be at least 1.")
    rules: Rules = {"max_lengths": max_lengths}
    if min_lengths is not None:
        rules["min_lengths"] = tf.convert_to_tensor(min_lengths, tf.int32)
    if prefix is not None:
        prefix = tf.ensure_shape(tf.convert_to_tensor(prefix, tf.int32), [None, None])
        # The added column of PAD leaves all sentences free after the longest prefix.
        rules["prefix"] = tf.pad(prefix, [[0, 0], [0, 1]], constant_values=PAD_ID)
    if context is not None:
        rules["context"] = tf.convert_to_tensor(context)
    return rules


def next_token(
    rules: Rules,
    tokens: tf.Tensor,
    index: tf.Tensor,
    no_repeat_ngram: int = 0,
    grammar: Grammar | None = None,
) -> NextToken:
    """Returns the constraints on the token after `tokens`, int32 [B, W, t], at t = `index`."""
    forced = None
    if "prefix" in rules:
        last = tf.shape(rules["prefix"])[1] - 1
        forced = tf.gather(rules["prefix"], tf.minimum(index, last), axis=1)
    return NextToken(
        must_end=rules["max_lengths"] <= index + 1,
        must_continue=rules["min_lengths"] > index + 1 if "min_lengths" in rules else None,
        forced=forced,
        forbidden=_repeats(tokens, no_repeat_ngram) if no_repeat_ngram else None,
        allowed=grammar(tokens, rules["context"]) if grammar else None,
    )


def _repeats(tokens: tf.Tensor, size: int) -> tf.Tensor:
    """Returns the tokens that would repeat an n-gram of a beam: [B, W, t] -> [B, W, R].

    They follow each earlier occurrence of the beam's last n - 1 tokens.
    """
    count = tf.maximum(tf.shape(tokens)[-1] - size + 1, 0)  # n-grams so far: R
    repeated = tf.fill(tf.shape(tokens[..., :count]), True)
    for offset in range(size - 1):
        last = tokens[..., count + offset : count + offset + 1]  # [B, W, 1]
        repeated &= tokens[..., offset : count + offset] == last
    return tf.where(repeated, tokens[..., size - 1 :], PAD_ID)
