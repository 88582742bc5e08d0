"""Candidates of a search: one-token extensions of its beams that obey the rules.

The best are for beam search; those drawn at random are for `sampling`. What no rule demands
adds no operation to the search.

B batch, W beam width, V vocabulary, C candidates of a sentence, k tokens considered per beam,
R forbidden tokens.
"""

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.decoding.hypotheses import BANNED_IDS
from tf_transformer.decoding.rules import NextToken, Operations

TENSORFLOW = Operations(
    where=tf.where,
    pad=tf.pad,
    concat=tf.concat,
    take=tf.gather,
    any=tf.reduce_any,
    all=tf.reduce_all,
    count=lambda values, axis: tf.reduce_sum(tf.cast(values, tf.int32), axis),
    first=lambda values, axis: tf.argmax(tf.cast(values, tf.int32), axis),
    sum=tf.reduce_sum,
    max=tf.reduce_max,
    cumsum=tf.cumsum,
)

# --- Candidates --------------------------------------------------------------------------


class Candidates(NamedTuple):
    """Extensions of a sentence's beams; impossible ones are at -inf."""

    parents: tf.Tensor  # int32 [B, C], the extended beam
    last_tokens: tf.Tensor  # int32 [B, C], the token appended to it
    log_probs: tf.Tensor  # float32 [B, C], of the beam including that token


def best_candidates(
    logits: tf.Tensor, log_probs: tf.Tensor, next_token: NextToken
) -> Candidates:
    """Returns the C best extensions of each sentence, best first.

    C is 2W: at most W of them end, so W stay alive. A single beam has one candidate, the most
    probable token: greedy search, which is over when that token is EOS. Ties go to the lower
    beam, then to the lower token id. Excluding tokens does not renormalise the probabilities of
    the others. Takes logits [B, W, V], V static, and `log_probs` [B, W] of the beams so far.
    """
    beam_size = log_probs.shape[1]
    logits = tf.ensure_shape(logits, [None, beam_size, None])
    count = 2 * beam_size if beam_size > 1 else 1
    # None of the C best can be outside the k best of its own beam.
    tokens, token_log_probs = _best_tokens(logits, count, next_token)  # -> [B, W, k]
    k = tokens.shape[-1]
    totals = log_probs[..., tf.newaxis] + token_log_probs  # -> [B, W, k]
    best, position = tf.math.top_k(tf.reshape(totals, [-1, beam_size * k]), count)  # -> [B, C]
    tokens = tf.reshape(tokens, [-1, beam_size * k])  # -> [B, W * k]
    return Candidates(
        parents=position // k,
        last_tokens=tf.gather(tokens, position, batch_dims=1),  # -> [B, C]
        log_probs=best,
    )


def drawn_candidates(
    logits: tf.Tensor,
    log_probs: tf.Tensor,
    next_token: NextToken,
    draw: Callable[[tf.Tensor], tf.Tensor],
) -> Candidates:
    """Returns one extension of each beam, C = W; see `best_candidates`.

    `draw` takes logits [B, W, V], -inf for excluded tokens, and returns tokens [B, W].
    """
    beam_size, vocabulary_size = logits.shape[1:]
    banned = _banned(tf.range(vocabulary_size), next_token)  # [V] or [B, W, V]
    possible = _without_excluded(tf.where(banned, -float("inf"), logits), next_token)
    tokens = draw(possible)[..., tf.newaxis]  # -> [B, W, 1]
    # Log-probabilities are of all tokens, as in beam search, not of the possible ones.
    normaliser = tf.reduce_logsumexp(logits, axis=-1, keepdims=True)  # -> [B, W, 1]
    token_log_probs = tf.gather(possible, tokens, batch_dims=2) - normaliser
    tokens, token_log_probs = _force_tokens(
        tokens, token_log_probs, logits, normaliser, next_token
    )
    parents = tf.broadcast_to(tf.range(beam_size), tf.shape(log_probs))
    return Candidates(parents, tokens[..., 0], log_probs + token_log_probs[..., 0])


def blocked_top_k(values: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Equals `tf.math.top_k` of float [B, W, V], ties included, but is faster for large V.

    Only the k blocks with the largest maxima can hold one of the k largest values, so the
    rest is never sorted. Blocks stay in ascending order, which keeps the order of ties.
    """
    width, size = values.shape[1:]
    block_size = _block_size(size, k)
    if size <= k * block_size:
        return tf.math.top_k(values, k)
    if size % block_size:
        padding = [[0, 0], [0, 0], [0, -size % block_size]]
        values = tf.pad(values, padding, constant_values=-float("inf"))
    # -> [B, W, blocks, block_size]
    blocks = tf.reshape(values, [-1, width, -(-size // block_size), block_size])
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=-1), k)
    chosen = tf.sort(chosen, axis=-1)  # [B, W, k]
    survivors = tf.gather(blocks, chosen, batch_dims=2)  # [B, W, k, block_size]
    survivors = tf.reshape(survivors, [-1, width, k * block_size])
    best, position = tf.math.top_k(survivors, k)  # [B, W, k], among the survivors
    # Back from a position among the survivors to one in the vocabulary.
    block = tf.gather(chosen, position // block_size, batch_dims=2)
    return best, block * block_size + position % block_size


def _block_size(vocab_size: int, k: int) -> int:
    """Returns a size near sqrt(V / k), with which fewest values are sorted: V / size + k size.

    One that divides V if possible, since padding copies all logits, and best a multiple of 8.
    """
    wanted = math.sqrt(vocab_size / k)
    near = range(max(8, round(wanted / 2)), max(9, round(2 * wanted) + 1))
    sizes = [size for size in near if not vocab_size % size] or [8 * max(1, round(wanted / 8))]
    return min(sizes, key=lambda size: (size % 8 > 0, abs(math.log(size / wanted))))


def log_sum_exp(logits: tf.Tensor, likely: tf.Tensor) -> tf.Tensor:
    """Returns log(sum(exp(logits))) over V: [B, W, V] -> [B, W, 1].

    It is the logit of any token minus its log-probability; that of `likely`, int32 [B, W, 1],
    the most probable token, cannot underflow. The softmax is one operation, where
    `tf.reduce_logsumexp` is four, each over all logits.
    """
    probability = tf.gather(tf.nn.softmax(logits), likely, batch_dims=2)
    return tf.gather(logits, likely, batch_dims=2) - tf.math.log(probability)


def _best_tokens(
    logits: tf.Tensor, count: int, next_token: NextToken
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns the best next tokens of each beam and their log-probabilities, both [B, W, k].

    k leaves room for banned tokens and EOS among the `count` best, unless V is smaller.
    """
    k = min(count + len(BANNED_IDS) + 1, logits.shape[-1])
    # Few tokens are excluded before the vocabulary is sorted, which is done once.
    possible = _without_excluded(logits, next_token)
    best_logits, tokens = blocked_top_k(possible, k)  # [B, W, V] -> [B, W, k]
    # The sum is over all tokens, also those that are excluded.
    likely = _most_probable(logits, tokens[..., :1], next_token)  # -> [B, W, 1]
    normaliser = log_sum_exp(logits, likely)  # -> [B, W, 1]
    banned = _banned(tokens, next_token)  # -> [B, W, k]
    log_probs = tf.where(banned, -float("inf"), best_logits - normaliser)
    return _force_tokens(tokens, log_probs, logits, normaliser, next_token)


def _most_probable(logits: tf.Tensor, best: tf.Tensor, next_token: NextToken) -> tf.Tensor:
    """Returns the most probable token of all [B, W, 1], given the best possible one.

    It is that of a search without rules, so both compute the same bits: an excluded token may
    be so probable that the softmax of all possible ones underflows.
    """
    if next_token.allowed is not None:
        return tf.argmax(logits, -1, tf.int32)[..., tf.newaxis]
    if next_token.forbidden is None:
        return best
    # It is either possible or in the list, so the vocabulary is not read once more.
    tokens = tf.concat([best, next_token.forbidden], axis=-1)  # [B, W, 1 + R]
    index = tf.argmax(tf.gather(logits, tokens, batch_dims=2), axis=-1)[..., tf.newaxis]
    return tf.gather(tokens, index, batch_dims=2)


def _banned(tokens: tf.Tensor, next_token: NextToken) -> tf.Tensor:
    """Returns a mask of tokens, [V] or [B, W, k], that are banned or end a beam too early."""
    banned = tf.reduce_any(tokens[..., tf.newaxis] == BANNED_IDS, axis=-1)
    if next_token.must_continue is not None:
        must_continue = next_token.must_continue[..., tf.newaxis]  # -> [B, W or 1, 1]
        banned |= must_continue & (tokens == EOS_ID)
    return banned


def _without_excluded(logits: tf.Tensor, next_token: NextToken) -> tf.Tensor:
    """Sets to -inf the logits [B, W, V] of tokens that are forbidden or not allowed."""
    if next_token.forbidden is not None:
        vocabulary_size = logits.shape[-1]
        flat = tf.reshape(logits, [-1])  # -> [B * W * V]
        starts = tf.range(tf.size(flat) // vocabulary_size)[:, tf.newaxis] * vocabulary_size
        # A scatter into one axis is several times as fast as into three.
        excluded = tf.reshape(
            next_token.forbidden, [tf.shape(starts)[0], tf.shape(next_token.forbidden)[-1]]
        )  # -> [B * W, R]
        positions = tf.reshape(starts + excluded, [-1, 1])  # -> [B * W * R, 1]
        impossible = tf.fill([tf.shape(positions)[0]], -float("inf"))
        flat = tf.tensor_scatter_nd_update(flat, positions, impossible)
        logits = tf.reshape(flat, tf.shape(logits))
    if next_token.allowed is not None:
        shape = logits.shape
        logits = tf.where(next_token.allowed, logits, -float("inf"))
        logits.set_shape(shape)
    return logits


def _force_tokens(
    tokens: tf.Tensor,
    log_probs: tf.Tensor,
    logits: tf.Tensor,
    normaliser: tf.Tensor,
    next_token: NextToken,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Makes the forced token the only possible one of the k [B, W, k]: the first of them."""
    if next_token.forced is None:
        return tokens, log_probs
    forced = next_token.forced[..., tf.newaxis]  # [B, W or 1, 1]
    by_beam, width = forced, logits.shape[1]
    if width != forced.shape[1] == 1:
        by_beam = tf.tile(forced, [1, width, 1])  # -> [B, W, 1]
    elif width != forced.shape[1]:  # a rule computes tensors of unknown shape
        by_beam = tf.broadcast_to(forced, tf.shape(normaliser))
    forced_log_probs = tf.gather(logits, by_beam, batch_dims=2) - normaliser  # -> [B, W, 1]
    is_first = np.arange(tokens.shape[-1]) == 0  # [k], a constant
    only = tf.where(is_first, forced_log_probs, -float("inf"))  # -> [B, W, k]
    is_forced = forced != PAD_ID
    outputs = tf.where(is_forced, forced, tokens), tf.where(is_forced, only, log_probs)
    for output in outputs:  # also if a rule computes tensors of unknown shape
        output.set_shape(tokens.shape)
    return outputs
