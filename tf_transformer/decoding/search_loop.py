"""State and loop of every search: sentences advance together and leave the batch once finished.

B batch, W beam width, N hypotheses returned, L longest length limit, t steps taken.
"""

from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

import tensorflow as tf

from tf_transformer.config import BOS_ID, PAD_ID
from tf_transformer.decoding.hypotheses import Hypotheses
from tf_transformer.decoding.rules import Rules

Cache = Any  # a nest of tensors whose dimension 0 is B


class StepFunction(Protocol):
    """One decoding step of a model, for every beam of every sentence.

    The cache is not reordered when beams are: a step must keep the results of every slot, and
    attend only to the slots that `ancestry` names. B shrinks as sentences finish.
    """

    def __call__(
        self, tokens: tf.Tensor, index: tf.Tensor, ancestry: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, Cache]:
        """Returns float32 logits [B, W, V] and the cache, whose empty axes may have grown.

        Args:
            tokens: int32 [B, W], the last tokens, all BOS in the first step.
            index: int32 scalar, the position, from 0.
            ancestry: int32 [B, W, index + 1]; [b, w, t] is the slot in which step t of the
                history of beam w was computed (w itself for t = index).
            cache: nest of tensors with dimension 0 = B.
        """


class State(NamedTuple):
    """The sentences still being searched, after t steps."""

    rows: tf.Tensor  # int32 [B], row of each sentence in the caller's batch
    rules: Rules
    last_tokens: tf.Tensor  # int32 [B, W], input of the next step: BOS when t = 0
    tokens: tf.Tensor  # int32 [B, W, t], of the alive beams
    log_probs: tf.Tensor  # float32 [B, W], of the alive beams, best first
    ancestry: tf.Tensor  # int32 [B, W, t], slot in which each past step was computed
    finished: Hypotheses  # the N best so far
    cache: Cache


def initial_state(
    cache: Cache, rules: Rules, beam_log_probs: list[float], num_hypotheses: int
) -> State:
    """Returns the state at t = 0; W `beam_log_probs` are -inf for beams not yet in use."""
    batch_size = tf.shape(rules["max_lengths"])[0]
    beam_size = len(beam_log_probs)
    # The maximum of an empty batch is negative.
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


Advance = Callable[[State], State]  # extends every alive beam by one token
Active = Callable[[State], tf.Tensor]  # bool [B]: whether to continue a sentence's search


def search(state: State, advance: Advance, active: Active) -> Hypotheses:
    """Searches until no sentence is active, and returns the finished hypotheses of all.

    Inactive sentences leave the batch as soon as they make up a quarter of it.
    """
    shapes = tf.nest.map_structure(_loop_shape, state)

    def over_three_quarters_are_active(state: State) -> tf.Tensor:
        count = tf.math.count_nonzero(active(state), dtype=tf.int32)
        return 4 * count > 3 * tf.size(state.rows)

    def search_then_compact(state: State, results: Hypotheses) -> tuple[State, Hypotheses]:
        (state,) = tf.while_loop(
            over_three_quarters_are_active,
            lambda state: (advance(state),),
            (state,),
            shape_invariants=(shapes,),
        )
        rows = state.rows[:, tf.newaxis]
        results = tf.nest.map_structure(
            lambda result, finished: tf.tensor_scatter_nd_update(result, rows, finished),
            results,
            state.finished,
        )
        remaining = tf.where(active(state))[:, 0]
        return tf.nest.map_structure(
            lambda tensor: tf.gather(tensor, remaining), state
        ), results

    _, results = tf.while_loop(
        lambda state, _: tf.size(state.rows) > 0,
        search_then_compact,
        (state, state.finished),
        shape_invariants=(shapes, shapes.finished),
    )
    # Finite, because servers answer in JSON, which has no infinity.
    return results._replace(
        log_probs=tf.maximum(results.log_probs, tf.float32.min),
        scores=tf.maximum(results.scores, tf.float32.min),
    )


def _loop_shape(tensor: tf.Tensor) -> tf.TensorShape:
    """Returns a shape without the batch size, which shrinks, and sizes of 0, which grow."""
    return tf.TensorShape([None, *(size or None for size in tensor.shape[1:])])
