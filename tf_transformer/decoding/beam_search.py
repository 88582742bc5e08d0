"""Beam search over any step function, as used for the translations of Section 6.1.

B batch, W beam width, V vocabulary, C candidates of a sentence (2W), N hypotheses returned,
L longest length limit, t steps taken. One step with B = 1, W = 2, N = 1 and four tokens:

    alive at t = 1    next-token log-probabilities           totals
                        eos      a      b      c        eos      a      b      c
    "a"     -0.50     -0.51  -2.30  -1.61  -2.30      -1.01  -2.80  -2.11  -2.80
    "b"     -1.00     -2.30  -0.51  -2.30  -1.61      -3.30  -1.51  -3.30  -2.61

    candidates   "a eos" -1.01   "b a" -1.51   "a b" -2.11   "b c" -2.61     the 2W best
    finished     "a eos"         score -1.01 / length_penalty(2, 0.6) = -0.92
    alive        "b a" -1.51   "a b" -2.11     the W best that do not end
    ancestry     [[0, 1], [0, 0]]              "b a" was extended from beam 1, "a b" from 0

Under a limit of 8 tokens this search stops (`Search.should_stop`): "b a" can at best reach
-1.51 / length_penalty(8, 0.6) = -0.95. An impossible beam or hypothesis has log-probability
-inf.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID
from tf_transformer.decoding.candidates import TENSORFLOW, Candidates, best_candidates
from tf_transformer.decoding.hypotheses import (
    Cache,
    Hypotheses,
    State,
    length_penalty,
    unbeatable,
)
from tf_transformer.decoding.rules import Applied, EndsAtLimit, NextToken, Rulebook
from tf_transformer.fast.programs import fitted_size


class StepFunction(Protocol):
    """One decoding step of a model, for every beam of every sentence.

    The cache is not reordered when beams are: a step must keep the results of every beam, and
    attend only to the beams that `ancestry` names. B shrinks as sentences finish.
    """

    def __call__(
        self, tokens: tf.Tensor, index: tf.Tensor, ancestry: tf.Tensor, cache: Cache
    ) -> tuple[tf.Tensor, Cache]:
        """Returns float32 logits [B, W, V] and the cache, whose empty axes may have grown.

        `tokens`, int32 [B, W], are the last ones, all BOS in the first step; `index` is the
        position, from 0; `ancestry`, int32 [B, W, index + 1], has at [b, w, t] the beam in
        which step t of the history of beam w was computed (w itself for t = index).
        """


def beam_search(
    step: StepFunction,
    cache: Cache,
    max_lengths: tf.Tensor,
    rules: Sequence[Applied] = (),
    *,
    beam_size: int,
    num_hypotheses: int = 1,
    alpha: float = 0.6,
    own_alphas: tf.Tensor | None = None,
    alphas: Sequence[float] = (),
    lookahead: int = 0,
    few_sizes: bool = False,
) -> Hypotheses:
    """Finds the hypotheses with the best length-normalised log-probability.

    PAD and BOS are never generated. A single beam is greedy search: the most probable token at
    every step. Rules only exclude hypotheses; they never renormalise probabilities.

    Args:
        step: decoding step of a model; V is static.
        cache: nest of tensors with dimension 0 = B. Only axes of static size 0 may grow.
        max_lengths: int32 [B], length limits, at least 1, where EOS is forced; those of a text
            come from `TextCodec.limits`.
        rules: pairs of a rule and its context; `rules.Rule` says what goes before what.
        beam_size: W.
        num_hypotheses: N, at most `beam_size`.
        alpha: exponent of `length_penalty`, not negative, since the stopping bound needs a
            penalty that grows with the length; 0 ranks by log-probability.
        own_alphas: float32 [B], one for each sentence instead.
        alphas: returns the best hypothesis under each of these, not the N best under `alpha`.
        lookahead: ends the search of a sentence when no better hypothesis can end within this
            many tokens. 0 continues as long as a better one is possible; only this is exact.
            Not used with `alphas`.
        few_sizes: keeps batches at few sizes, for a step that XLA compiles.
    """
    settings = {}
    if own_alphas is not None:
        own_alphas = tf.ensure_shape(tf.convert_to_tensor(own_alphas, tf.float32), [None])
        settings["alpha"] = own_alphas[:, tf.newaxis]  # [B, 1]

    def choose(logits: tf.Tensor, state: State, next_token: NextToken) -> Candidates:
        return best_candidates(logits, state.log_probs, next_token)

    # All beams start out equal, so only the first may be extended.
    only_first = [0.0] + [-float("inf")] * (beam_size - 1)
    book, state = started(
        cache, max_lengths, rules, settings, only_first, len(alphas) or num_hypotheses
    )
    if alphas:
        several = tf.constant(alphas, tf.float32)  # [A]
        return SearchForAlphas(step, book, choose, several, 0, few_sizes).run(state)
    common = tf.constant(alpha, tf.float32)
    return Search(step, book, choose, common, lookahead, few_sizes).run(state)


def started(
    cache: Cache,
    max_lengths: tf.Tensor,
    rules: Sequence[Applied],
    settings: dict[str, tf.Tensor],
    beam_log_probs: list[float],
    num_hypotheses: int,
) -> tuple[Rulebook, State]:
    """Returns the rules of a search and its state at t = 0.

    W `beam_log_probs` are -inf for beams not yet in use.
    """
    rules = [(EndsAtLimit(), ()), *rules]
    book = Rulebook(tuple(rule for rule, _ in rules), TENSORFLOW)
    contexts = tuple(context for _, context in rules)
    batch_size, beam_size = tf.shape(max_lengths)[0], len(beam_log_probs)
    # The maximum of an empty batch is negative.
    longest = tf.maximum(tf.reduce_max(max_lengths), 0)
    impossible = tf.fill([batch_size, num_hypotheses], -float("inf"))
    state = State(
        rows=tf.range(batch_size),
        max_lengths=max_lengths,
        contexts=tf.nest.map_structure(tf.convert_to_tensor, contexts),
        rule_states=((),) * len(rules),
        settings=settings,
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
    return book, state._replace(rule_states=book.initial_states(state))


@dataclass(frozen=True)
class Search:
    """A search: the model's step, the choice of candidates, and the length penalty."""

    step: StepFunction
    book: Rulebook
    choose: Callable[[tf.Tensor, State, NextToken], Candidates]  # from logits [B, W, V]
    alpha: tf.Tensor  # float32, a scalar or [N], where sentences have no setting of their own
    lookahead: int  # 0: up to the length limit
    few_sizes: bool  # whether batches have only sizes of `fitted_size`

    def run(self, state: State) -> Hypotheses:
        """Searches until all sentences should stop; returns the N best hypotheses of all.

        Sentences advance together; those that should stop leave the batch as soon as they make
        up a quarter of it, or the next smaller size suffices.
        """
        shapes, number = tf.nest.map_structure(_loop_shape, state), tf.size(state.rows)
        if self.few_sizes:
            state = _filled_up(state, fitted_size(number))

        def search_a_while(state: State, results: Hypotheses) -> tuple[State, Hypotheses]:
            state = self._advance_together(state, shapes)
            # Of all sentences still here: those that go on overwrite theirs later.
            results = _put(results, state.rows, state.finished)
            return self._without_stopped(state), results

        _, results = tf.while_loop(
            lambda state, _: tf.size(state.rows) > 0,
            search_a_while,
            (state, state.finished),
            shape_invariants=(shapes, shapes.finished),
        )
        if self.few_sizes:  # without those that filled it up
            results = tf.nest.map_structure(lambda tensor: tensor[:number], results)
        # Finite, because servers answer in JSON, which has no infinity.
        return results._replace(
            log_probs=tf.maximum(results.log_probs, tf.float32.min),
            scores=tf.maximum(results.scores, tf.float32.min),
        )

    def _advance_together(self, state: State, shapes: State) -> State:
        """Extends all beams, as often as it pays to compute the stopped sentences too."""

        def goes_on(state: State) -> tf.Tensor:
            stopped = tf.math.count_nonzero(self.should_stop(state), dtype=tf.int32)
            size = tf.size(state.rows)
            # Gathering the cache costs more than computing a few sentences too many.
            return fitted_size(size - stopped) == size if self.few_sizes else 4 * stopped < size

        def advance(state: State) -> tuple[State]:
            return (self.advance(state),)

        (state,) = tf.while_loop(goes_on, advance, (state,), shape_invariants=(shapes,))
        return state

    def _without_stopped(self, state: State) -> State:
        """Leaves out the sentences that should stop, but for those that fill up the batch."""
        stopped = self.should_stop(state)
        remaining = tf.where(~stopped)[:, 0]  # in ascending order
        if self.few_sizes:
            both = tf.concat([remaining, tf.where(stopped)[:, 0]], axis=0)
            remaining = both[: fitted_size(tf.size(remaining))]
        return tf.nest.map_structure(lambda tensor: tf.gather(tensor, remaining), state)

    def alpha_of(self, state: State) -> tf.Tensor:
        """Returns the exponents of the length penalty, which broadcast to [B, N]."""
        return state.settings.get("alpha", self.alpha)

    def should_stop(self, state: State) -> tf.Tensor:
        """Returns bool [B]: whether no alive beam can enter the N best any more.

        At the length limit EOS is forced, so no beam stays alive, and no score is below -inf;
        a single beam that ends with EOS leaves none alive either.
        With `lookahead`, the limit is at most that many tokens away.
        """
        limits = state.max_lengths
        if self.lookahead:
            limits = tf.minimum(limits, tf.shape(state.tokens)[-1] + self.lookahead)
        limits = tf.cast(limits, tf.float32)[:, tf.newaxis]
        scores, alpha = state.finished.scores, self.alpha_of(state)
        return tf.reduce_all(unbeatable(scores, state.log_probs, limits, alpha), axis=1)

    def advance(self, state: State) -> State:
        """Extends every alive beam by one token."""
        if self.lookahead:  # a stopped sentence stays stopped, whatever else is in its batch
            stopped = self.should_stop(state)[:, tf.newaxis]
            log_probs = tf.where(stopped, -float("inf"), state.log_probs)
            state = state._replace(log_probs=log_probs)
        index = tf.shape(state.tokens)[-1]  # t
        beam_size = state.tokens.shape[1]
        # Each beam computes this step itself, whatever beam its past was computed in.
        beams = tf.broadcast_to(tf.range(beam_size), tf.shape(state.last_tokens))
        ancestry = _append(state.ancestry, beams)  # -> [B, W, t + 1]
        logits, cache = self.step(state.last_tokens, index, ancestry, state.cache)

        next_token = self.book.next_token(state, index)
        candidates = self.choose(logits, state, next_token)  # [B, W, V] -> [B, C]
        tokens = _append(  # -> [B, C, t + 1]
            _take(state.tokens, candidates.parents), candidates.last_tokens
        )
        ends = candidates.last_tokens == EOS_ID
        log_probs, alive = tf.math.top_k(  # [B, C] -> [B, W]
            tf.where(ends, -float("inf"), candidates.log_probs), beam_size
        )
        ended_log_probs = tf.where(ends, candidates.log_probs, -float("inf"))
        parents = _take(candidates.parents, alive)  # -> [B, W]
        state = state._replace(
            rule_states=tf.nest.map_structure(
                lambda tensor: _take(tensor, parents), state.rule_states
            ),
            last_tokens=_take(candidates.last_tokens, alive),  # -> [B, W]
            tokens=_take(tokens, alive),  # -> [B, W, t + 1]
            log_probs=log_probs,
            ancestry=_take(ancestry, parents),  # -> [B, W, t + 1]
            finished=self.merge(state, tokens, ended_log_probs),
            cache=cache,
        )
        return state._replace(rule_states=self.book.next_states(state, index))

    def merge(self, state: State, tokens: tf.Tensor, log_probs: tf.Tensor) -> Hypotheses:
        """Returns the N best of the finished hypotheses and the candidates that end now.

        `tokens` [B, C, t] are the candidates, `log_probs` [B, C] -inf where one does not end.
        """
        ended = self._ended(state, tokens, log_probs)
        pool = tf.nest.map_structure(  # -> [B, N + C]
            lambda *pair: tf.concat(pair, axis=1), state.finished, ended
        )
        # Earlier entries win ties, so no candidate at -inf replaces the initial fillers.
        _, best = tf.math.top_k(pool.scores, state.finished.scores.shape[1])
        return tf.nest.map_structure(lambda tensor: _take(tensor, best), pool)  # -> [B, N]

    def _ended(self, state: State, tokens: tf.Tensor, log_probs: tf.Tensor) -> Hypotheses:
        """Returns the candidates, tokens [B, C, t], as hypotheses with tokens [B, C, L]."""
        length = tf.shape(tokens)[-1]
        missing = tf.shape(state.finished.tokens)[-1] - length
        penalty = length_penalty(tf.cast(length, tf.float32), self.alpha_of(state))
        return Hypotheses(
            tokens=tf.pad(tokens, [[0, 0], [0, 0], [0, missing]], constant_values=PAD_ID),
            lengths=tf.fill(tf.shape(log_probs), length),
            log_probs=log_probs,
            scores=log_probs / penalty,
        )


class SearchForAlphas(Search):
    """A search for the best hypothesis under each of A alphas: N = A.

    The beams do not depend on alpha, which only ranks finished hypotheses and decides when to
    stop. A search that continues while any alpha could still gain is exact for all of them.
    """

    def merge(self, state: State, tokens: tf.Tensor, log_probs: tf.Tensor) -> Hypotheses:
        """Returns the best hypothesis so far under each alpha, [B, A]; see `Search.merge`.

        Candidates that end in one step are equally long, so the most probable is the best under
        every alpha.
        """
        best = tf.argmax(log_probs, axis=1)[:, tf.newaxis]
        # -> [B, 1], but scores [B, A]
        ended = self._ended(state, _take(tokens, best), _take(log_probs, best))
        better = ended.scores > state.finished.scores
        finished = state.finished
        return Hypotheses(
            tokens=tf.where(better[..., tf.newaxis], ended.tokens, finished.tokens),
            lengths=tf.where(better, ended.lengths, finished.lengths),
            log_probs=tf.where(better, ended.log_probs, finished.log_probs),
            scores=tf.where(better, ended.scores, finished.scores),
        )


# --- Tensors of sentences and beams ------------------------------------------------------


def _take(tensor: tf.Tensor, indices: tf.Tensor) -> tf.Tensor:
    """Gathers from axis 1 for each sentence: [B, I, ...], [B, J] -> [B, J, ...]."""
    return tf.gather(tensor, indices, batch_dims=1)


def _append(sequences: tf.Tensor, last: tf.Tensor) -> tf.Tensor:
    """Appends a token to each sequence: [B, I, t], [B, I] -> [B, I, t + 1]."""
    return tf.concat([sequences, last[..., tf.newaxis]], axis=-1)


def _put(results: Hypotheses, rows: tf.Tensor, finished: Hypotheses) -> Hypotheses:
    """Returns the results of all sentences with the finished hypotheses in these rows."""
    return tf.nest.map_structure(
        lambda all_rows, new: tf.tensor_scatter_nd_update(all_rows, rows[:, tf.newaxis], new),
        results,
        finished,
    )


def _filled_up(state: State, size: tf.Tensor) -> State:
    """Returns a state of this many sentences; those added have stopped already."""
    number = tf.size(state.rows)
    rows = tf.range(size)
    source = tf.minimum(rows, number - 1)
    state = tf.nest.map_structure(lambda tensor: tf.gather(tensor, source), state)
    added = (rows >= number)[:, tf.newaxis]
    return state._replace(rows=rows, log_probs=tf.where(added, -float("inf"), state.log_probs))


def _loop_shape(tensor: tf.Tensor) -> tf.TensorShape:
    """Returns a shape without the batch size, which shrinks, and sizes of 0, which grow."""
    return tf.TensorShape([None, *(size or None for size in tensor.shape[1:])])
