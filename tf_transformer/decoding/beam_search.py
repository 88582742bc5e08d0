"""Beam search over any step function, as used for the translations of Section 6.1.

B batch, W beam width, V vocabulary, N hypotheses returned per sentence, L longest length
limit, C candidates per sentence, t steps taken so far. An impossible beam or hypothesis
has log-probability -inf.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.decoding.candidates import best_candidates

Cache = Any  # a nest of tensors whose dimension 0 is B
StepFunction = Callable[[tf.Tensor, tf.Tensor, tf.Tensor, Cache], tuple[tf.Tensor, Cache]]


class Hypotheses(NamedTuple):
    """Finished hypotheses of every sentence, best first.

    A sentence that has fewer than N hypotheses (one limited to a single token can only be
    empty) fills the rest with pads, length 0 and the lowest float32 as both sums.
    """

    tokens: tf.Tensor  # int32 [B, N, L], EOS included, PAD after it
    lengths: tf.Tensor  # int32 [B, N], EOS counted
    log_probs: tf.Tensor  # float32 [B, N], natural logarithm, summed over the tokens
    scores: tf.Tensor  # float32 [B, N], log_probs / length_penalty(lengths, alpha)


class _State(NamedTuple):
    """The sentences still in the search, after t steps."""

    rows: tf.Tensor  # int32 [B], where each sentence stands in the caller's batch
    max_lengths: tf.Tensor  # int32 [B]
    last_tokens: tf.Tensor  # int32 [B, W], what the next step reads: BOS when t = 0
    tokens: tf.Tensor  # int32 [B, W, t], of the alive beams
    log_probs: tf.Tensor  # float32 [B, W], of the alive beams, best first
    ancestry: tf.Tensor  # int32 [B, W, t], the slot in which each past step was computed
    finished: Hypotheses  # the N best so far
    cache: Cache


def beam_search(
    step: StepFunction,
    cache: Cache,
    max_lengths: tf.Tensor,
    *,
    beam_size: int,
    num_hypotheses: int = 1,
    alpha: float = 0.6,
) -> Hypotheses:
    """Finds the hypotheses with the best length-normalised log-probability.

    A sentence ends when no alive beam can still enter its N best, at the latest at its own
    length limit, where EOS is forced; it then leaves the batch. Pad and BOS are never
    generated. A single beam is greedy search: the most probable token at every step.

    The cache is not reordered when beams are: `step` must keep what it computed in every
    slot at every step, and attend only to the slots that `ancestry` names.

    Args:
        step: `step(tokens, index, ancestry, cache) -> (logits, cache)`. `tokens` int32
            [B, W] are the last tokens (all BOS when `index`, an int32 scalar, is 0);
            `ancestry` int32 [B, W, index + 1] is, at `[b, w, t]`, the slot in which step t
            of the history of beam w was computed (w itself for t = index). `logits` are
            float32 [B, W, V], V static. B shrinks as sentences finish.
        cache: Nest of tensors with dimension 0 = B. An axis of static size 0 may grow;
            the others keep their size.
        max_lengths: int32 [B], the most tokens of each sentence, EOS counted; at least 1.
        beam_size: W.
        num_hypotheses: N, at most `beam_size`.
        alpha: Exponent of `length_penalty`, not negative; 0 ranks by log-probability.

    Raises:
        ValueError: If `beam_size`, `num_hypotheses` or `alpha` is out of range.
    """
    _check_arguments(beam_size, num_hypotheses, alpha)
    tf.debugging.assert_greater_equal(max_lengths, 1, "`max_lengths` must be at least 1.")
    state = _initial_state(cache, max_lengths, beam_size, num_hypotheses)
    shapes = tf.nest.map_structure(_loop_shape, state)

    def search_then_compact(state: _State, results: Hypotheses) -> tuple[_State, Hypotheses]:
        (state,) = tf.while_loop(
            lambda state: _mostly_active(state, alpha),
            lambda state: (_advance(step, state, alpha),),
            (state,),
            shape_invariants=(shapes,),
        )
        return _keep_active(state, alpha), _store(results, state)

    _, results = tf.while_loop(
        lambda state, _: tf.size(state.rows) > 0,
        search_then_compact,
        (state, state.finished),
        shape_invariants=(shapes, shapes.finished),
    )
    # Finite, because a served answer is JSON, which has no infinity.
    return results._replace(
        log_probs=tf.maximum(results.log_probs, tf.float32.min),
        scores=tf.maximum(results.scores, tf.float32.min),
    )


def length_penalty(length: tf.Tensor | int, alpha: float) -> tf.Tensor:
    """((5 + length) / 6) ** alpha, float32 (Wu et al. 2016, equation 14)."""
    return tf.pow((5.0 + tf.cast(length, tf.float32)) / 6.0, alpha)


def _check_arguments(beam_size: int, num_hypotheses: int, alpha: float) -> None:
    if beam_size < 1:
        raise ValueError(f"`beam_size` must be at least 1. Received: beam_size={beam_size}.")
    if not 1 <= num_hypotheses <= beam_size:
        raise ValueError(
            "`num_hypotheses` must be between 1 and `beam_size`. "
            f"Received: num_hypotheses={num_hypotheses}, beam_size={beam_size}."
        )
    if not alpha >= 0:  # the stopping bound needs a penalty that grows with the length
        raise ValueError(f"`alpha` must not be negative. Received: alpha={alpha}.")


def _initial_state(
    cache: Cache, max_lengths: tf.Tensor, beam_size: int, num_hypotheses: int
) -> _State:
    batch_size = tf.shape(max_lengths)[0]
    longest = tf.maximum(tf.reduce_max(max_lengths), 0)  # a maximum of nothing is negative
    impossible = tf.fill([batch_size, num_hypotheses], -float("inf"))
    # All beams start equal, so only the first may be extended.
    only_first = tf.tile([[0.0] + [-float("inf")] * (beam_size - 1)], [batch_size, 1])
    return _State(
        rows=tf.range(batch_size),
        max_lengths=max_lengths,
        last_tokens=tf.fill([batch_size, beam_size], BOS_ID),
        tokens=tf.zeros([batch_size, beam_size, 0], tf.int32),
        log_probs=only_first,
        ancestry=tf.zeros([batch_size, beam_size, 0], tf.int32),
        finished=Hypotheses(
            tokens=tf.fill([batch_size, num_hypotheses, longest], PAD_ID),
            lengths=tf.zeros([batch_size, num_hypotheses], tf.int32),
            log_probs=impossible,
            scores=impossible,
        ),
        cache=cache,
    )


def _loop_shape(tensor: tf.Tensor) -> tf.TensorShape:
    """The batch shrinks and an axis that starts empty grows."""
    return tf.TensorShape([None, *(size or None for size in tensor.shape[1:])])


def _active(state: _State, alpha: float) -> tf.Tensor:
    """bool [B]: whether an alive beam can still enter the N best.

    The log-probability of a beam can only fall, and no penalty is larger than that of the
    length limit. At the limit no beam is alive, and nothing is below -inf.
    """
    bound = state.log_probs[:, 0] / length_penalty(state.max_lengths, alpha)
    return state.finished.scores[:, -1] < bound


def _mostly_active(state: _State, alpha: float) -> tf.Tensor:
    """Whether over three quarters of the batch are active; below it pays to compact."""
    active = tf.math.count_nonzero(_active(state, alpha), dtype=tf.int32)
    return 4 * active > 3 * tf.size(state.rows)


def _keep_active(state: _State, alpha: float) -> _State:
    active = tf.where(_active(state, alpha))[:, 0]
    return tf.nest.map_structure(lambda tensor: tf.gather(tensor, active), state)


def _store(results: Hypotheses, state: _State) -> Hypotheses:
    """Writes what the sentences of the state have finished into their rows of the results."""
    rows = state.rows[:, tf.newaxis]
    return tf.nest.map_structure(
        lambda result, finished: tf.tensor_scatter_nd_update(result, rows, finished),
        results,
        state.finished,
    )


def _take(tensor: tf.Tensor, positions: tf.Tensor) -> tf.Tensor:
    """Picks entries of axis 1 for each sentence: [B, I, ...], [B, J] -> [B, J, ...]."""
    return tf.gather(tensor, positions, batch_dims=1)


def _append(sequences: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    """[B, I, t], [B, I] -> [B, I, t + 1]."""
    return tf.concat([sequences, last[..., tf.newaxis]], axis=-1)


def _advance(step: StepFunction, state: _State, alpha: float) -> _State:
    """Extends every alive beam by one token."""
    index = tf.shape(state.tokens)[-1]
    beam_size = state.tokens.shape[1]
    own_slots = tf.broadcast_to(tf.range(beam_size), tf.shape(state.last_tokens))
    ancestry = _append(state.ancestry, own_slots)
    logits, cache = step(state.last_tokens, index, ancestry, state.cache)

    candidates = best_candidates(logits, state.log_probs, state.max_lengths <= index + 1)
    tokens = _append(_take(state.tokens, candidates.parents), candidates.last_tokens)
    ends = candidates.last_tokens == EOS_ID
    log_probs, alive = tf.math.top_k(
        tf.where(ends, -float("inf"), candidates.log_probs), beam_size
    )
    ended_log_probs = tf.where(ends, candidates.log_probs, -float("inf"))
    return state._replace(
        last_tokens=_take(candidates.last_tokens, alive),
        tokens=_take(tokens, alive),
        log_probs=log_probs,
        ancestry=_take(ancestry, _take(candidates.parents, alive)),
        finished=_merge_finished(state.finished, tokens, ended_log_probs, alpha),
        cache=cache,
    )


def _merge_finished(
    finished: Hypotheses, tokens: tf.Tensor, log_probs: tf.Tensor, alpha: float
) -> Hypotheses:
    """The N best of those finished before and those of this step.

    Args:
        finished: The N best so far.
        tokens: int32 [B, C, t].
        log_probs: float32 [B, C], -inf where the candidate does not end.
    """
    length = tf.shape(tokens)[-1]
    missing = tf.shape(finished.tokens)[-1] - length
    ended = Hypotheses(
        tokens=tf.pad(tokens, [[0, 0], [0, 0], [0, missing]], constant_values=PAD_ID),
        lengths=tf.fill(tf.shape(log_probs), length),
        log_probs=log_probs,
        scores=log_probs / length_penalty(length, alpha),
    )
    pool = tf.nest.map_structure(lambda *pair: tf.concat(pair, axis=1), finished, ended)
    # Earlier places win ties, so no candidate at -inf replaces the pads set at the start.
    _, best = tf.math.top_k(pool.scores, finished.scores.shape[1])
    return tf.nest.map_structure(lambda tensor: _take(tensor, best), pool)
