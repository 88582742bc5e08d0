"""Rules for the next token: length limits, a forced beginning, no repeated n-gram, a grammar.

B batch, W beam width, V vocabulary, P longest prefix, t steps taken so far, R tokens that are
forbidden. A rule that is off has no entry, and adds no operation to the search.
"""

from collections.abc import Sequence
from typing import NamedTuple, NotRequired, Protocol, TypedDict

import numpy as np
import tensorflow as tf

from tf_transformer.config import PAD_ID


class Rules(TypedDict):
    """What holds for each sentence by itself, whatever the others in its batch have."""

    max_lengths: tf.Tensor  # int32 [B], the most tokens, EOS counted
    min_lengths: NotRequired[tf.Tensor]  # int32 [B], the fewest tokens, EOS counted
    prefix: NotRequired[tf.Tensor]  # int32 [B, P + 1], the first tokens, PAD after them
    alpha: NotRequired[tf.Tensor]  # float32 [B], exponents of the length penalty
    context: NotRequired[tf.Tensor]  # [B, N, G], what a grammar knows of each source
    keys: NotRequired[tf.Tensor]  # int32 [B, 2], of the random numbers of each sentence


class NextToken(NamedTuple):
    """What the rules say of the next token; None where they say nothing."""

    must_end: tf.Tensor  # bool [B], whether it is EOS
    must_go_on: tf.Tensor | None = None  # bool [B], whether it is not EOS
    forced: tf.Tensor | None = None  # int32 [B], what it is, PAD where it is free
    forbidden: tf.Tensor | None = None  # int32 [B, W, R], what it is not, or PAD
    allowed: tf.Tensor | None = None  # bool [B, W, V], what a grammar lets it be


class Grammar(Protocol):
    """What keeps a search to sequences that are well-formed for their source."""

    def context(self, sentences: Sequence[str]) -> np.ndarray:
        """What it has to know of the sentences of a batch: bool [B, N, G], any N and G."""

    def __call__(self, tokens: tf.Tensor, context: tf.Tensor) -> tf.Tensor:
        """What may follow `tokens`, int32 [B, W, t]: bool [B, W, V].

        At least one token that is neither PAD nor BOS, unless the beam is impossible. Such a
        beam may hold anything.
        """


def make_rules(
    max_lengths: tf.Tensor,
    min_lengths: tf.Tensor | None = None,
    prefix: tf.Tensor | None = None,
    context: tf.Tensor | None = None,
) -> Rules:
    """The rules of a search, as `beam_search` takes them."""
    tf.debugging.assert_greater_equal(max_lengths, 1, "`max_lengths` must be at least 1.")
    rules: Rules = {"max_lengths": max_lengths}
    if min_lengths is not None:
        rules["min_lengths"] = tf.convert_to_tensor(min_lengths, tf.int32)
    if prefix is not None:
        prefix = tf.ensure_shape(tf.convert_to_tensor(prefix, tf.int32), [None, None])
        # After the longest prefix comes a column of pads: from there on all are free.
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
    """What may follow the beams `tokens`, int32 [B, W, t], at t = `index`.

    EOS at the length limit stands above a forced token, and that above all else.
    """
    forced = None
    if "prefix" in rules:
        last = tf.shape(rules["prefix"])[1] - 1
        forced = tf.gather(rules["prefix"], tf.minimum(index, last), axis=1)
    return NextToken(
        must_end=rules["max_lengths"] <= index + 1,
        must_go_on=rules["min_lengths"] > index + 1 if "min_lengths" in rules else None,
        forced=forced,
        forbidden=_repeats(tokens, no_repeat_ngram) if no_repeat_ngram else None,
        allowed=grammar(tokens, rules["context"]) if grammar else None,
    )


def _repeats(tokens: tf.Tensor, size: int) -> tf.Tensor:
    """The tokens that would end an n-gram which a beam has already: [B, W, t] -> [B, W, R].

    An n-gram repeats where its first n - 1 tokens are the last n - 1 of the beam.
    """
    count = tf.maximum(tf.shape(tokens)[-1] - size + 1, 0)  # of n-grams so far: R
    repeated = tf.fill(tf.shape(tokens[..., :count]), True)
    for offset in range(size - 1):
        own = tokens[..., count + offset : count + offset + 1]  # [B, W, 1]
        repeated &= tokens[..., offset : count + offset] == own
    return tf.where(repeated, tokens[..., size - 1 :], PAD_ID)


def without(logits: tf.Tensor, forbidden: tf.Tensor) -> tf.Tensor:
    """The logits [B, W, V], at -inf for the tokens `forbidden`, int32 [B, W, R]."""
    vocabulary_size = tf.shape(logits)[-1]
    flat = tf.reshape(logits, [-1])
    starts = tf.range(tf.size(flat) // vocabulary_size)[:, tf.newaxis] * vocabulary_size
    beams = tf.reshape(forbidden, [tf.shape(starts)[0], tf.shape(forbidden)[-1]])
    positions = tf.reshape(starts + beams, [-1, 1])
    impossible = tf.fill([tf.shape(positions)[0]], -float("inf"))
    return tf.reshape(
        tf.tensor_scatter_nd_update(flat, positions, impossible), tf.shape(logits)
    )
