"""The best one-token extensions of the beams of a search, picked from their logits.

B batch, W beam width, V vocabulary, C candidates per sentence, k tokens per beam.
"""

from typing import NamedTuple

import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID

BANNED_IDS = (PAD_ID, BOS_ID)
BLOCK_SIZE = 128


class Candidates(NamedTuple):
    """Extensions of a sentence's beams, best first; impossible ones are at -inf."""

    parents: tf.Tensor  # int32 [B, C], the beam that is extended
    last_tokens: tf.Tensor  # int32 [B, C], the token it is extended with
    log_probs: tf.Tensor  # float32 [B, C], of the extended beam


def best_candidates(logits: tf.Tensor, log_probs: tf.Tensor, at_limit: tf.Tensor) -> Candidates:
    """The C best extensions of each sentence.

    C is 2W, of which at most W end, so that W can go on. A single beam has one candidate,
    the most probable token: greedy search, which is over when that token is EOS.

    Pad and BOS are never used. Ties go to the lower beam, then to the lower token id.

    Args:
        logits: float32 [B, W, V], V static.
        log_probs: float32 [B, W], of the beams so far.
        at_limit: bool [B], the sentences in which only EOS is allowed.
    """
    beam_size = log_probs.shape[1]
    logits = tf.ensure_shape(logits, [None, beam_size, None])
    count = 2 * beam_size if beam_size > 1 else 1
    tokens, token_log_probs = _best_tokens(logits, count, at_limit)  # [B, W, k]
    k = tokens.shape[-1]
    totals = tf.reshape(log_probs[..., tf.newaxis] + token_log_probs, [-1, beam_size * k])
    best, position = tf.math.top_k(totals, count)  # [B, C]
    tokens = tf.reshape(tokens, [-1, beam_size * k])
    return Candidates(
        parents=position // k,
        last_tokens=tf.gather(tokens, position, batch_dims=1),
        log_probs=best,
    )


def blocked_top_k(values: tf.Tensor, k: int) -> tuple[tf.Tensor, tf.Tensor]:
    """`tf.math.top_k` of float [B, W, V], ties included, but faster when V is large.

    Only the k blocks with the largest maxima can hold one of the k largest values, so the
    rest is never sorted. Blocks stay in the order of their numbers to keep that of ties.
    """
    width, size = values.shape[1:]
    if size <= k * BLOCK_SIZE:
        return tf.math.top_k(values, k)
    padding = [[0, 0], [0, 0], [0, -size % BLOCK_SIZE]]
    values = tf.pad(values, padding, constant_values=-float("inf"))
    blocks = tf.reshape(values, [-1, width, values.shape[-1] // BLOCK_SIZE, BLOCK_SIZE])
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=-1), k)
    chosen = tf.sort(chosen, axis=-1)  # [B, W, k]
    survivors = tf.gather(blocks, chosen, batch_dims=2)  # [B, W, k, BLOCK_SIZE]
    survivors = tf.reshape(survivors, [-1, width, k * BLOCK_SIZE])
    best, position = tf.math.top_k(survivors, k)
    block = tf.gather(chosen, position // BLOCK_SIZE, batch_dims=2)
    return best, block * BLOCK_SIZE + position % BLOCK_SIZE


def _best_tokens(
    logits: tf.Tensor, count: int, at_limit: tf.Tensor
) -> tuple[tf.Tensor, tf.Tensor]:
    """The next tokens [B, W, k] worth considering and their log-probabilities [B, W, k].

    k leaves room for banned tokens among the `count` best, unless V is smaller. At the
    limit EOS stands in the first place and the others are impossible.
    """
    k = min(count + len(BANNED_IDS), logits.shape[-1])
    # One pass for the normaliser and one for the best logits: no [B, W, V] log-softmax.
    normaliser = tf.reduce_logsumexp(logits, axis=-1, keepdims=True)  # [B, W, 1]
    best_logits, tokens = blocked_top_k(logits, k)
    banned = tf.reduce_any(tokens[..., tf.newaxis] == BANNED_IDS, axis=-1)
    log_probs = tf.where(banned, -float("inf"), best_logits - normaliser)

    eos_log_probs = logits[..., EOS_ID : EOS_ID + 1] - normaliser
    forced = tf.where(tf.range(k) == 0, eos_log_probs, -float("inf"))
    at_limit = at_limit[:, tf.newaxis, tf.newaxis]
    return tf.where(at_limit, EOS_ID, tokens), tf.where(at_limit, forced, log_probs)
