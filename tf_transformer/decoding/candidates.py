"""Candidates of a search: one-token extensions of its beams that obey the rules.

The best are for beam search; those drawn at random are for `sampling`. The rules are length
limits, a forced prefix, no repeated n-gram, slots, and a grammar. One that is off has no entry,
and adds no operation to the search.

B batch, W beam width, V vocabulary, C candidates of a sentence, k tokens considered per beam,
P longest prefix, t steps taken so far, R forbidden tokens, F forms of a slot: within a
word, and after a space.
"""

from collections.abc import Callable, Hashable, Sequence
from typing import NamedTuple, NotRequired, Protocol, TypedDict

import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID

BANNED_IDS = (PAD_ID, BOS_ID)  # never generated
BLOCK_SIZE = 128

# --- Rules -------------------------------------------------------------------------------


class Rules(TypedDict):
    """Rules of each sentence, independent of the others in its batch."""

    max_lengths: tf.Tensor  # int32 [B], at least 1, EOS counted
    min_lengths: NotRequired[tf.Tensor]  # int32 [B], EOS counted
    prefix: NotRequired[tf.Tensor]  # int32 [B, P + 1], the first tokens, PAD after them
    alpha: NotRequired[tf.Tensor]  # float32 [B, 1], exponents of the length penalty
    context: NotRequired[tf.Tensor]  # bool [B, N, G], a grammar's context of each source
    slots: NotRequired[tf.Tensor]  # int32 [B, 9], how often each slot is in the source
    keys: NotRequired[tf.Tensor]  # int32 [B, 2], keys of each sentence's random numbers


class NextToken(NamedTuple):
    """Constraints on the next token; None for a rule that is off."""

    must_end: tf.Tensor  # bool [B], EOS must come
    must_continue: tf.Tensor | None = None  # bool [B], EOS must not come
    forced: tf.Tensor | None = None  # int32 [B], the token that must come, PAD if any may
    slot: tf.Tensor | None = None  # int32 [B, W], the slot that must come, PAD if any may
    wrong: tf.Tensor | None = None  # int32 [B, W, 9 F + 1], other slots, EOS before all, or PAD
    forbidden: tf.Tensor | None = None  # int32 [B, W, R], tokens that must not come, or PAD
    allowed: tf.Tensor | None = None  # bool [B, W, V] or [V]; by a grammar, or in training


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
    context: tf.Tensor | None = None,
    slots: tf.Tensor | None = None,
) -> Rules:
    """Returns the rules of a search; the fields of `Rules` say what each holds.

    EOS at the length limit takes precedence over a prefix, this over slots, and they over the
    other rules. If these exclude every hypothesis of a sentence, it gets only fillers, see
    `Hypotheses`.

    Every hypothesis of a sentence begins with its row of `prefix` [B, P], padded with PAD,
    which may be empty. These tokens count in length and log-probability, and may repeat
    n-grams. A prefix that reaches the limit is cut to leave room for EOS.
    """
    rules: Rules = {"max_lengths": max_lengths}
    if min_lengths is not None:
        rules["min_lengths"] = tf.convert_to_tensor(min_lengths, tf.int32)
    if prefix is not None:
        prefix = tf.ensure_shape(tf.convert_to_tensor(prefix, tf.int32), [None, None])
        # The added column of PAD leaves all sentences free after the longest prefix.
        rules["prefix"] = tf.pad(prefix, [[0, 0], [0, 1]], constant_values=PAD_ID)
    if context is not None:
        rules["context"] = tf.convert_to_tensor(context)
    if slots is not None:
        rules["slots"] = slots
    return rules


def next_token(
    rules: Rules,
    tokens: tf.Tensor,
    index: tf.Tensor,
    no_repeat_ngram: int = 0,
    grammar: Grammar | None = None,
    slot_ids: np.ndarray | None = None,
) -> NextToken:
    """Returns the constraints on the token after `tokens`, int32 [B, W, t], at t = `index`."""
    forced = slot = wrong = None
    if slot_ids is not None:
        left = rules["slots"][:, tf.newaxis] - slot_counts(tokens, slot_ids)
        slot, wrong = _next_slot(left, rules["max_lengths"] - index, slot_ids)
    if "prefix" in rules:
        last = tf.shape(rules["prefix"])[1] - 1
        forced = tf.gather(rules["prefix"], tf.minimum(index, last), axis=1)
    return NextToken(
        must_end=rules["max_lengths"] <= index + 1,
        must_continue=rules["min_lengths"] > index + 1 if "min_lengths" in rules else None,
        forced=forced,
        slot=slot,
        wrong=wrong,
        forbidden=repeating(tokens, no_repeat_ngram) if no_repeat_ngram else None,
        allowed=grammar(tokens, rules["context"]) if grammar else None,
    )


def repeating(tokens: tf.Tensor, size: int, where: Callable = tf.where) -> tf.Tensor:
    """Returns the tokens that would repeat an n-gram of a beam, or PAD: [B, W, t] -> [B, W, R].

    They follow each earlier occurrence of the beam's last n - 1 tokens; R is t - n + 1, or 0.
    Takes tensors; or arrays, with NumPy's `where`.
    """
    repeated = True
    for back in range(size - 1, 0, -1):
        last = tokens[..., -back : 1 - back or None]  # [B, W, 1]
        repeated &= tokens[..., size - 1 - back : -back] == last  # [B, W, R]
    return where(repeated, tokens[..., size - 1 :], PAD_ID)


def slot_counts(ids: tf.Tensor, slot_ids: np.ndarray) -> tf.Tensor:
    """Returns how often each slot [9, F] is in ids, in any form: [..., t] -> int32 [..., 9]."""
    equal = ids[..., tf.newaxis, :, tf.newaxis] == slot_ids[:, np.newaxis]  # [..., 9, t, F]
    return tf.reduce_sum(tf.cast(equal, tf.int32), axis=[-2, -1])


def _next_slot(
    left: tf.Tensor, room: tf.Tensor, slot_ids: np.ndarray
) -> tuple[tf.Tensor, tf.Tensor]:
    """Returns what slots demand: each of the source comes as often as there, before EOS.

    When the tokens up to the limit, `room` [B], suffice just for those that are `left`
    [B, W, 9], these come in their order.

    Returns:
        int32 [B, W], the slot that must come, or PAD; and [B, W, 9 F + 1], tokens that must
        not, or PAD.
    """
    waiting = left > 0
    number = tf.reduce_sum(tf.where(waiting, left, 0), axis=-1)  # [B, W]
    first = tf.gather(slot_ids[:, -1], tf.argmax(tf.cast(waiting, tf.int32), axis=-1))
    is_due = (number > 0) & (number >= room[:, tf.newaxis] - 1)
    forms = [tf.where(waiting, PAD_ID, form) for form in slot_ids.T]  # [B, W, 9]
    end = tf.where(number > 0, EOS_ID, PAD_ID)[..., tf.newaxis]
    return tf.where(is_due, first, PAD_ID), tf.concat([*forms, end], axis=-1)


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
    tokens, token_log_probs = _best_tokens(logits, count, next_token)  # -> [B, W, k]
    k = tokens.shape[-1]
    totals = log_probs[..., tf.newaxis] + token_log_probs
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
    banned = _banned(tf.range(vocabulary_size), next_token)
    possible = _without_excluded(tf.where(banned, -float("inf"), logits), next_token)
    tokens = draw(possible)[..., tf.newaxis]  # -> [B, W, 1]
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
    block_size = _block_size(size)
    if size <= k * block_size:
        return tf.math.top_k(values, k)
    if size % block_size:
        padding = [[0, 0], [0, 0], [0, -size % block_size]]
        values = tf.pad(values, padding, constant_values=-float("inf"))
    blocks = tf.reshape(values, [-1, width, -(-size // block_size), block_size])
    _, chosen = tf.math.top_k(tf.reduce_max(blocks, axis=-1), k)
    chosen = tf.sort(chosen, axis=-1)  # [B, W, k]
    survivors = tf.gather(blocks, chosen, batch_dims=2)  # [B, W, k, block_size]
    survivors = tf.reshape(survivors, [-1, width, k * block_size])
    best, position = tf.math.top_k(survivors, k)
    block = tf.gather(chosen, position // block_size, batch_dims=2)
    return best, block * block_size + position % block_size


def _block_size(vocab_size: int) -> int:
    """Returns a size from 32 to 128, one that divides V if possible: padding copies logits."""
    sizes = (64, *range(BLOCK_SIZE, 31, -1))
    return next((size for size in sizes if not vocab_size % size), BLOCK_SIZE)


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
    possible = _without_excluded(logits, next_token)
    best_logits, tokens = blocked_top_k(possible, k)  # [B, W, V] -> [B, W, k]
    if possible is logits:
        likely = tokens[..., :1]
    elif next_token.forbidden is None and next_token.allowed is None:
        likely = _most_probable(logits, tokens[..., :1], next_token.wrong)
    else:
        likely = tf.argmax(logits, -1, tf.int32)[..., tf.newaxis]
    normaliser = log_sum_exp(logits, likely)  # -> [B, W, 1]
    banned = _banned(tokens, next_token)
    log_probs = tf.where(banned, -float("inf"), best_logits - normaliser)
    return _force_tokens(tokens, log_probs, logits, normaliser, next_token)


def _most_probable(logits: tf.Tensor, best: tf.Tensor, wrong: tf.Tensor) -> tf.Tensor:
    """Returns the most probable token [B, W, 1]: the best possible, or one of the wrong ones.

    It is that of a search without slots, so both compute the same bits.
    """
    tokens = tf.concat([best, wrong], axis=-1)
    index = tf.argmax(tf.gather(logits, tokens, batch_dims=2), axis=-1)[..., tf.newaxis]
    return tf.gather(tokens, index, batch_dims=2)


def _banned(tokens: tf.Tensor, next_token: NextToken) -> tf.Tensor:
    """Returns a mask of tokens, [V] or [B, W, k], that are banned or end a beam too early."""
    banned = tf.reduce_any(tokens[..., tf.newaxis] == BANNED_IDS, axis=-1)
    if next_token.must_continue is not None:
        must_continue = next_token.must_continue[:, tf.newaxis, tf.newaxis]  # -> [B, 1, 1]
        banned |= must_continue & (tokens == EOS_ID)
    return banned


def _without_excluded(logits: tf.Tensor, next_token: NextToken) -> tf.Tensor:
    """Sets to -inf the logits [B, W, V] of forbidden tokens and those outside the grammar."""
    given = (next_token.forbidden, next_token.wrong)
    if lists := [tokens for tokens in given if tokens is not None]:
        excluded = tf.concat(lists, axis=-1)
        vocabulary_size = logits.shape[-1]
        flat = tf.reshape(logits, [-1])
        starts = tf.range(tf.size(flat) // vocabulary_size)[:, tf.newaxis] * vocabulary_size
        excluded = tf.reshape(excluded, [tf.shape(starts)[0], tf.shape(excluded)[-1]])
        positions = tf.reshape(starts + excluded, [-1, 1])
        impossible = tf.fill([tf.shape(positions)[0]], -float("inf"))
        flat = tf.tensor_scatter_nd_update(flat, positions, impossible)
        logits = tf.reshape(flat, tf.shape(logits))
    if next_token.allowed is not None:
        logits = tf.where(next_token.allowed, logits, -float("inf"))
    return logits


def _force_tokens(
    tokens: tf.Tensor,
    log_probs: tf.Tensor,
    logits: tf.Tensor,
    normaliser: tf.Tensor,
    next_token: NextToken,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Makes a slot, a token of the prefix or EOS the only possible one of the k [B, W, k]."""
    if next_token.slot is not None:
        slot = next_token.slot[..., tf.newaxis]  # -> [B, W, 1]
        slot_log_probs = tf.gather(logits, slot, batch_dims=2) - normaliser
        tokens, log_probs = _replace(tokens, log_probs, slot != PAD_ID, slot, slot_log_probs)
    if next_token.forced is not None:
        forced = next_token.forced[:, tf.newaxis, tf.newaxis]  # -> [B, 1, 1]
        by_beam = tf.tile(forced, [1, logits.shape[1], 1])  # -> [B, W, 1]
        forced_log_probs = tf.gather(logits, by_beam, batch_dims=2) - normaliser
        is_forced = forced != PAD_ID
        tokens, log_probs = _replace(tokens, log_probs, is_forced, forced, forced_log_probs)
    eos_log_probs = logits[..., EOS_ID : EOS_ID + 1] - normaliser
    must_end = next_token.must_end[:, tf.newaxis, tf.newaxis]
    return _replace(tokens, log_probs, must_end, EOS_ID, eos_log_probs)


def _replace(
    tokens: tf.Tensor,
    log_probs: tf.Tensor,
    where: tf.Tensor,
    only_token: tf.Tensor | int,
    only_log_probs: tf.Tensor,
) -> tuple[tf.Tensor, tf.Tensor]:
    """Puts `only_token` first of the k where `where` is True, and excludes the others."""
    first = tf.range(tokens.shape[-1]) == 0
    only = tf.where(first, only_log_probs, -float("inf"))
    return tf.where(where, only_token, tokens), tf.where(where, only, log_probs)
