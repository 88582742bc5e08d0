"""The best one-token extensions of the beams of a search, picked from their logits.

B batch, W beam width, V vocabulary, C candidates per sentence, k tokens per beam.
"""

from typing import NamedTuple

import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.decoding.rules import NextToken, without

BANNED_IDS = (PAD_ID, BOS_ID)
BLOCK_SIZE = 128


class Candidates(NamedTuple):
    """Extensions of a sentence's beams, best first; impossible ones are at -inf."""

    parents: tf.Tensor  # int32 [B, C], the beam that is extended
    last_tokens: tf.Tensor  # int32 [B, C], the token it is extended with
    log_probs: tf.Tensor  # float32 [B, C], of the extended beam


def best_candidates(
    logits: tf.Tensor, log_probs: tf.Tensor, next_token: NextToken
) -> Candidates:
    """The C best extensions of each sentence.

    C is 2W, of which at most W end, so that W can go on. A single beam has one candidate,
    the most probable token: greedy search, which is over when that token is EOS.

    Pad and BOS are never chosen. Ties go to the lower beam, then to the lower token id.

    Args:
        logits: float32 [B, W, V], V static, or at least `least_tokens(W)`.
        log_probs: float32 [B, W], of the beams so far.
        next_token: what the rules of each sentence say. What they exclude keeps its share of
            the probability: log-probabilities are the model's own.
    """
    beam_size = log_probs.shape[1]
    logits = tf.ensure_shape(logits, [None, beam_size, None])
    count = 2 * beam_size if beam_size > 1 else 1
    tokens, token_log_probs = _best_tokens(logits, count, next_token)  # [B, W, k]
    k = tokens.shape[-1]
    totals = tf.reshape(log_probs[..., tf.newaxis] + token_log_probs, [-1, beam_size * k])
    best, position = tf.math.top_k(totals, count)  # [B, C]
    tokens = tf.reshape(tokens, [-1, beam_size * k])
    return Candidates(
        parents=position // k,
        last_tokens=tf.gather(tokens, position, batch_dims=1),
        log_probs=best,
    )


def least_tokens(beam_size: int) -> int:
    """The fewest tokens a search may be among where only the graph knows how many they are."""
    return (2 * beam_size + len(BANNED_IDS) + 1) * BLOCK_SIZE


def blocked_top_k(values: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`tf.math.top_k` of float [B, W, V], ties included, but faster when V is large.

    Only the k blocks with the largest maxima can hold one of the k largest values, so the
    rest is never sorted. Blocks stay in the order of their numbers to keep that of ties.
    Where only the graph knows V, it must be at least k * BLOCK_SIZE.
    """
    width, size = values.shape[1:]
    if size is None:
        size = tf.shape(values)[-1]
    elif size <= k * BLOCK_SIZE:
        return tf.math.top_k(values, k)
    padding = [[0, 0], [0, 0], [0, -size % BLOCK_SIZE]]
    values = tf.pad(values, padding, constant_values=-float("inf"))
    blocks = tf.reshape(values, [-1, width, -(-size // BLOCK_SIZE), BLOCK_SIZE])
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=-1), k)
    chosen = tf.sort(chosen, axis=-1)  # [B, W, k]
    survivors = tf.gather(blocks, chosen, batch_dims=2)  # [B, W, k, BLOCK_SIZE]
    survivors = tf.reshape(survivors, [-1, width, k * BLOCK_SIZE])
    best, position = tf.math.top_k(survivors, k)
    block = tf.gather(chosen, position // BLOCK_SIZE, batch_dims=2)
    return best, block * BLOCK_SIZE + position % BLOCK_SIZE


def log_sum_exp(logits: tf.Tensor, likely: tf.Tensor) -> tf.Tensor:
    """log(sum(exp(logits))) over V: [B, W, V] -> [B, W, 1].

    A token's logit less its log-probability is that, whichever token it is. The softmax is one
    operation, where `tf.reduce_logsumexp` is four, each over all logits.

    Args:
        logits: float32 [B, W, V].
        likely: int32 [B, W, 1], the most probable token, whose probability cannot underflow.
    """
    probability = tf.gather(tf.nn.softmax(logits), likely, batch_dims=2)
    return tf.gather(logits, likely, batch_dims=2) - tf.math.log(probability)


def _best_tokens(
    logits: tf.Tensor, count: int, next_token: NextToken
) -> tuple[tf.Tensor, tf.Tensor]:
    """The next tokens [B, W, k] worth considering and their log-probabilities [B, W, k].

    k leaves room for banned tokens and EOS among the `count` best, unless V is smaller.
    """
    k = count + len(BANNED_IDS) + 1
    if logits.shape[-1] is not None:
        k = min(k, logits.shape[-1])
    allowed = logits
    if next_token.forbidden is not None:
        allowed = without(logits, next_token.forbidden)
    if next_token.allowed is not None:
        allowed = tf.where(next_token.allowed, allowed, -float("inf"))
    best_logits, tokens = blocked_top_k(allowed, k)
    free = allowed is logits
    likely = tokens[..., :1] if free else tf.argmax(logits, -1, tf.int32)[..., tf.newaxis]
    normaliser = log_sum_exp(logits, likely)
    banned = tf.reduce_any(tokens[..., tf.newaxis] == BANNED_IDS, axis=-1)
    if next_token.must_go_on is not None:
        must_go_on = next_token.must_go_on[:, tf.newaxis, tf.newaxis]
        banned |= must_go_on & (tokens == EOS_ID)
    log_probs = tf.where(banned, -float("inf"), best_logits - normaliser)
    return force(tokens, log_probs, logits, normaliser, next_token)


def force(
    tokens: tf.Tensor,
    log_probs: tf.Tensor,
    logits: tf.Tensor,
    normaliser: tf.Tensor,
    next_token: NextToken,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Puts a token that must come in the first of k places, and makes the others impossible.

    Args:
        tokens, log_probs: int32 and float32 [B, W, k], of what was considered so far.
        logits, normaliser: float32 [B, W, V] and [B, W, 1], of all tokens.
        next_token: what must come: EOS, a token of a prefix, or nothing in particular.
    """
    if next_token.forced is not None:
        forced = next_token.forced[:, tf.newaxis, tf.newaxis]  # [B, 1, 1]
        each = tf.tile(forced, [1, logits.shape[1], 1])
        forced_log_probs = tf.gather(logits, each, batch_dims=2) - normaliser  # [B, W, 1]
        is_forced = forced != PAD_ID
        tokens, log_probs = _replace(tokens, log_probs, is_forced, forced, forced_log_probs)
    eos_log_probs = logits[..., EOS_ID : EOS_ID + 1] - normaliser
    must_end = next_token.must_end[:, tf.newaxis, tf.newaxis]
    return _replace(tokens, log_probs, must_end, EOS_ID, eos_log_probs)


def _replace(tokens, log_probs, where, only_token, only_log_probs):
    """The first of k places becomes `only_token` and the others impossible, `where` so."""
    first = tf.range(tokens.shape[-1]) == 0
    only = tf.where(first, only_log_probs, -float("inf"))
    return tf.where(where, only_token, tokens), tf.where(where, only, log_probs)
