"""The loop of every search: advance, merge what has ended, let finished sentences leave.

B batch, W beam width, V vocabulary, N hypotheses returned per sentence, L longest length
limit, C candidates per sentence, t steps taken so far. An impossible beam or hypothesis
has log-probability -inf. What the search chooses among, and how, is given to it.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.decoding.candidates import Candidates
from tf_transformer.decoding.rules import Rules

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


class State(NamedTuple):
    """The sentences still in the search, after t steps."""

    rows: tf.Tensor  # int32 [B], where each sentence stands in the caller's batch
    rules: Rules
    last_tokens: tf.Tensor  # int32 [B, W], what the next step reads: BOS when t = 0
    tokens: tf.Tensor  # int32 [B, W, t], of the alive beams
    log_probs: tf.Tensor  # float32 [B, W], of the alive beams, best first
    ancestry: tf.Tensor  # int32 [B, W, t], the slot in which each past step was computed
    finished: Hypotheses  # the N best so far
    cache: Cache


class Method(NamedTuple):
    """What makes a search: the model's step, the choice of candidates, the penalty."""

    step: StepFunction
    choose: Callable[[tf.Tensor, State, tf.Tensor], Candidates]  # of logits [B, W, V] at t
    alpha: float = 0.0  # of every sentence, unless the rules hold one for each

    def alpha_of(self, state: State) -> float | tf.Tensor:
        return state.rules.get("alpha", self.alpha)


def search(method: Method, state: State) -> Hypotheses:
    """Runs a search to the end of every sentence.

    A sentence ends when no alive beam can still enter its N best, at the latest at its own
    length limit, where EOS is forced; it then leaves the batch.
    """
    shapes = tf.nest.map_structure(_loop_shape, state)

    def search_then_compact(state: State, results: Hypotheses) -> tuple[State, Hypotheses]:
        (state,) = tf.while_loop(
            lambda state: _mostly_active(method, state),
            lambda state: (_advance(method, state),),
            (state,),
            shape_invariants=(shapes,),
        )
        return _keep_active(method, state), _store(results, state)

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


def length_penalty(length: tf.Tensor | int, alpha: float | tf.Tensor) -> tf.Tensor:
    """((5 + length) / 6) ** alpha, float32 (Wu et al. 2016, equation 14)."""
    return tf.pow((5.0 + tf.cast(length, tf.float32)) / 6.0, alpha)


def initial_state(
    cache: Cache, rules: Rules, beam_log_probs: list[float], num_hypotheses: int
) -> State:
    """No token yet; `beam_log_probs` has W entries, -inf for a beam that may not begin."""
    batch_size = tf.shape(rules["max_lengths"])[0]
    beam_size = len(beam_log_probs)
    # A maximum of nothing is negative.
    longest = tf.maximum(tf.reduce_max(rules["max_lengths"]), 0)
    impossible = tf.fill([batch_size, num_hypotheses], -float("inf"))
    return State(
        rows=tf.range(batch_size),
        rules=rules,
        last_tokens=tf.fill([batch_size, beam_size], BOS_ID),
        tokens=tf.zeros([batch_size, beam_size, 0], tf.int32),
        log_probs=tf.tile([beam_log_probs], [batch_size, 1]),
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


def _active(method: Method, state: State) -> tf.Tensor:
    """bool [B]: whether an alive beam can still enter the N best.

    The log-probability of a beam can only fall, and no penalty is larger than that of the
    length limit. At the limit no beam is alive, and nothing is below -inf. No rule breaks
    this bound: each only removes hypotheses.
    """
    penalty = length_penalty(state.rules["max_lengths"], method.alpha_of(state))
    return state.finished.scores[:, -1] < state.log_probs[:, 0] / penalty


def _mostly_active(method: Method, state: State) -> tf.Tensor:
    """Whether over three quarters of the batch are active; below it pays to compact."""
    active = tf.math.count_nonzero(_active(method, state), dtype=tf.int32)
    return 4 * active > 3 * tf.size(state.rows)


def _keep_active(method: Method, state: State) -> State:
    active = tf.where(_active(method, state))[:, 0]
    return tf.nest.map_structure(lambda tensor: tf.gather(tensor, active), state)


def _store(results: Hypotheses, state: State) -> Hypotheses:
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


def _advance(method: Method, state: State) -> State:
    """Extends every alive beam by one token."""
    index = tf.shape(state.tokens)[-1]
    beam_size = state.tokens.shape[1]
    own_slots = tf.broadcast_to(tf.range(beam_size), tf.shape(state.last_tokens))
    ancestry = _append(state.ancestry, own_slots)
    logits, cache = method.step(state.last_tokens, index, ancestry, state.cache)

    candidates = method.choose(logits, state, index)
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
        finished=_merge_finished(
            state.finished, tokens, ended_log_probs, method.alpha_of(state)
        ),
        cache=cache,
    )


def _merge_finished(
    finished: Hypotheses, tokens: tf.Tensor, log_probs: tf.Tensor, alpha: float | tf.Tensor
) -> Hypotheses:
    """The N best of those finished before and those of this step.

    Args:
        finished: The N best so far.
        tokens: int32 [B, C, t].
        log_probs: float32 [B, C], -inf where the candidate does not end.
        alpha: exponent of the penalty, or float32 [B].
    """
    length = tf.shape(tokens)[-1]
    missing = tf.shape(finished.tokens)[-1] - length
    penalty = length_penalty(length, alpha)
    ended = Hypotheses(
        tokens=tf.pad(tokens, [[0, 0], [0, 0], [0, missing]], constant_values=PAD_ID),
        lengths=tf.fill(tf.shape(log_probs), length),
        log_probs=log_probs,
        scores=log_probs / (penalty[:, tf.newaxis] if penalty.shape.rank else penalty),
    )
    pool = tf.nest.map_structure(lambda *pair: tf.concat(pair, axis=1), finished, ended)
    # Earlier places win ties, so no candidate at -inf replaces the pads set at the start.
    _, best = tf.math.top_k(pool.scores, finished.scores.shape[1])
    return tf.nest.map_structure(lambda tensor: _take(tensor, best), pool)
