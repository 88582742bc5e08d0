"""Beam search over any step function, as used for the translations of Section 6.1."""

from numbers import Real

import tensorflow as tf

from tf_transformer.decoding.candidates import Candidates, best_candidates
from tf_transformer.decoding.rules import Grammar, make_rules, next_token
from tf_transformer.decoding.search import (
    Cache,
    Hypotheses,
    Method,
    State,
    StepFunction,
    initial_state,
    length_penalty,
    search,
)

__all__ = ["Hypotheses", "beam_search", "length_penalty"]


def beam_search(
    step: StepFunction,
    cache: Cache,
    max_lengths: tf.Tensor,
    *,
    beam_size: int,
    num_hypotheses: int = 1,
    alpha: float | tf.Tensor = 0.6,
    prefix: tf.Tensor | None = None,
    min_lengths: tf.Tensor | None = None,
    no_repeat_ngram: int = 0,
    grammar: Grammar | None = None,
    context: tf.Tensor | None = None,
) -> Hypotheses:
    """Finds the hypotheses with the best length-normalised log-probability.

    A sentence ends when no alive beam can still enter its N best, at the latest at its own
    length limit, where EOS is forced; it then leaves the batch. Pad and BOS are never
    generated. A single beam is greedy search: the most probable token at every step.

    The rules exclude hypotheses and change no log-probability: those are the model's own. EOS
    at the limit goes first, then a prefix, then the other rules. Should these leave a sentence
    no hypothesis at all, it has fillers only (see `Hypotheses`).

    The cache is not reordered when beams are: `step` must keep what it computed in every
    slot at every step, and attend only to the slots that `ancestry` names.

    Args:
        step: `step(tokens, index, ancestry, cache) -> (logits, cache)`. `tokens` int32
            [B, W] are the last tokens (all BOS when `index`, an int32 scalar, is 0);
            `ancestry` int32 [B, W, index + 1] is, at `[b, w, t]`, the slot in which step t
            of the history of beam w was computed (w itself for t = index). `logits` are
            float32 [B, W, V], V static, or at least `candidates.least_tokens(W)`. B shrinks
            as sentences finish.
        cache: Nest of tensors with dimension 0 = B. An axis of static size 0 may grow;
            the others keep their size.
        max_lengths: int32 [B], the most tokens of each sentence, EOS counted; at least 1.
        beam_size: W.
        num_hypotheses: N, at most `beam_size`.
        alpha: Exponent of `length_penalty`, not negative; 0 ranks by log-probability. Or a
            tensor, float32 [B]: one for each sentence. A tensor's values are not checked;
            with one below 0 a sentence may stop too early.
        prefix: int32 [B, P], tokens that every hypothesis of a sentence begins with, padded
            behind with PAD; a row may be empty. They count in length and log-probability. Of
            a prefix that reaches the limit, what leaves room for EOS is followed: no sentence
            takes more steps than its limit. None: no prefix.
        min_lengths: int32 [B], the fewest tokens of each sentence, EOS counted. None: 1.
        no_repeat_ngram: no hypothesis holds the same n tokens in a row twice, unless in its
            prefix; 0 allows all.
        grammar: what each token must be of to follow those before it. None: all may.
        context: bool [B, N, G], what the grammar knows of each source: its `context`.

    Raises:
        ValueError: If `beam_size`, `num_hypotheses`, `alpha` or `no_repeat_ngram` is out of
            range, or only one of `grammar` and `context` is given.
    """
    if (grammar is None) != (context is None):
        raise ValueError("`grammar` and `context` go together. Received: only one of them.")
    _check_arguments(beam_size, num_hypotheses, alpha, no_repeat_ngram)
    rules = make_rules(max_lengths, min_lengths, prefix, context)
    if not isinstance(alpha, Real):
        rules["alpha"] = tf.ensure_shape(tf.convert_to_tensor(alpha, tf.float32), [None])

    def choose(logits: tf.Tensor, state: State, index: tf.Tensor) -> Candidates:
        allowed = next_token(state.rules, state.tokens, index, no_repeat_ngram, grammar)
        return best_candidates(logits, state.log_probs, allowed)

    # All beams start equal, so only the first may be extended.
    only_first = [0.0] + [-float("inf")] * (beam_size - 1)
    state = initial_state(cache, rules, only_first, num_hypotheses)
    return search(Method(step, choose, alpha), state)


def _check_arguments(
    beam_size: int, num_hypotheses: int, alpha: float | tf.Tensor, no_repeat_ngram: int
) -> None:
    if beam_size < 1:
        raise ValueError(f"`beam_size` must be at least 1. Received: beam_size={beam_size}.")
    if not 1 <= num_hypotheses <= beam_size:
        raise ValueError(
            "`num_hypotheses` must be between 1 and `beam_size`. "
            f"Received: num_hypotheses={num_hypotheses}, beam_size={beam_size}."
        )
    # The stopping bound needs a penalty that grows with the length.
    if isinstance(alpha, Real) and not alpha >= 0:
        raise ValueError(f"`alpha` must not be negative. Received: alpha={alpha}.")
    check_no_repeat(no_repeat_ngram)


def check_no_repeat(no_repeat_ngram: int) -> None:
    if no_repeat_ngram < 0:
        raise ValueError(
            "`no_repeat_ngram` must not be negative. "
            f"Received: no_repeat_ngram={no_repeat_ngram}."
        )
