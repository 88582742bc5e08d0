"""Sampling of translations: a search whose beams are independent draws from the model.

B batch, W samples of a sentence, V vocabulary, k tokens that may be drawn.
"""

import tensorflow as tf

from tf_transformer.config import EOS_ID, TEMPERATURES
from tf_transformer.decoding.beam_search import check_no_repeat
from tf_transformer.decoding.candidates import BANNED_IDS, Candidates, blocked_top_k, force
from tf_transformer.decoding.rules import NextToken, make_rules, next_token, without
from tf_transformer.decoding.search import (
    Cache,
    Hypotheses,
    Method,
    State,
    StepFunction,
    initial_state,
    search,
)


def sample(
    step: StepFunction,
    cache: Cache,
    max_lengths: tf.Tensor,
    *,
    num_samples: int,
    seed: int | tf.Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    prefix: tf.Tensor | None = None,
    min_lengths: tf.Tensor | None = None,
    no_repeat_ngram: int = 0,
) -> Hypotheses:
    """Draws translations token by token; the same seed draws the same ones.

    A token is drawn from softmax(logits / temperature) among those that the rules allow,
    then among the `top_k` most probable of them, then among the fewest of these whose
    probabilities sum to `top_p` (Fan et al. 2018; Holtzman et al. 2020, section 3.1).

    Args:
        step, cache, max_lengths: as `beam_search` takes them, V static; W is `num_samples`.
        num_samples: independent draws for each sentence; some may be equal.
        seed: of the random numbers. A number: each row of the batch has a stream of its own.
            A tensor, int32 [B]: the seed of each sentence, whose samples then depend neither
            on its place nor on the rest of the batch.
        temperature: from 0.01 to 100; below 1 it sharpens, above it flattens the distribution.
        top_k: 0 means the whole vocabulary.
        top_p: in (0, 1]. Below 1 without `top_k`, the vocabulary is sorted at every step.
        prefix, min_lengths, no_repeat_ngram: as for `beam_search`.

    Returns:
        The samples, most probable first. Log-probabilities are the model's own, whatever was
        drawn from, and scores equal them.

    Raises:
        ValueError: If an argument is out of range.
    """
    _check_arguments(num_samples, temperature, top_k, top_p)
    check_no_repeat(no_repeat_ngram)
    rules = make_rules(max_lengths, min_lengths, prefix)
    rules["keys"] = _keys(seed, tf.shape(max_lengths)[0])

    def choose(logits: tf.Tensor, state: State, index: tf.Tensor) -> Candidates:
        allowed = next_token(state.rules, state.tokens, index, no_repeat_ngram)
        logits = tf.ensure_shape(logits, [None, num_samples, None])
        numbers = _uniform_numbers(state.rules["keys"], index, num_samples)

        def draw(logits: tf.Tensor) -> tf.Tensor:
            return _draw(logits / temperature, numbers, top_k, top_p)

        return _candidates(logits, state.log_probs, allowed, draw)

    state = initial_state(cache, rules, [0.0] * num_samples, num_samples)
    return search(Method(step, choose), state)


def _check_arguments(num_samples: int, temperature: float, top_k: int, top_p: float) -> None:
    if num_samples < 1:
        raise ValueError(f"`num_samples` must be at least 1. Received: {num_samples}.")
    low, high = TEMPERATURES
    if not low <= temperature <= high:
        raise ValueError(
            f"`temperature` must be from {low} to {high}. Received: {temperature}."
        )
    if top_k < 0:
        raise ValueError(f"`top_k` must not be negative. Received: {top_k}.")
    if not 0 < top_p <= 1:
        raise ValueError(f"`top_p` must be above 0, at most 1. Received: {top_p}.")


def _keys(seed: int | tf.Tensor, batch_size: tf.Tensor) -> tf.Tensor:
    """The key of each sentence's random numbers, int32 [B, 2]."""
    seed = tf.convert_to_tensor(seed, tf.int32)
    if seed.shape.rank:
        return tf.stack([seed, tf.zeros_like(seed)], axis=1)
    return tf.stack([tf.fill([batch_size], seed), tf.range(batch_size)], axis=1)


def _uniform_numbers(keys: tf.Tensor, index: tf.Tensor, count: int) -> tf.Tensor:
    """[B, 2] -> [B, W] in [0, 1), for step `index`."""
    return tf.map_fn(
        lambda key: tf.random.stateless_uniform([count], tf.random.fold_in(key, index)),
        keys,
        fn_output_signature=tf.TensorSpec([count], tf.float32),
    )


def _candidates(logits, log_probs, allowed: NextToken, draw) -> Candidates:
    """One extension of each beam, [B, W]: `draw` takes logits and gives tokens."""
    beam_size, vocabulary_size = logits.shape[1:]
    banned = tf.reduce_any(tf.range(vocabulary_size)[:, tf.newaxis] == BANNED_IDS, axis=-1)
    if allowed.must_go_on is not None:
        ends = tf.range(vocabulary_size) == EOS_ID
        banned |= allowed.must_go_on[:, tf.newaxis, tf.newaxis] & ends
    possible = tf.where(banned, -float("inf"), logits)
    if allowed.forbidden is not None:
        possible = without(possible, allowed.forbidden)
    tokens = draw(possible)[..., tf.newaxis]  # [B, W, 1]
    normaliser = tf.reduce_logsumexp(logits, axis=-1, keepdims=True)
    drawn_log_probs = tf.gather(possible, tokens, batch_dims=2) - normaliser
    tokens, drawn_log_probs = force(tokens, drawn_log_probs, logits, normaliser, allowed)
    own = tf.broadcast_to(tf.range(beam_size), tf.shape(log_probs))
    return Candidates(own, tokens[..., 0], log_probs + drawn_log_probs[..., 0])


def _draw(logits: tf.Tensor, numbers: tf.Tensor, top_k: int, top_p: float) -> tf.Tensor:
    """Tokens [B, W] by numbers [B, W] in [0, 1): where the cumulative distribution passes."""
    if top_k or top_p < 1:
        count = min(top_k or logits.shape[-1], logits.shape[-1])
        logits, ranked = blocked_top_k(logits, count)
    weights = tf.nn.softmax(logits)  # [B, W, k]
    if top_p < 1:
        before = tf.cumsum(weights, axis=-1, exclusive=True)
        weights = tf.where(before < top_p, weights, 0.0)
    cumulative = tf.cumsum(weights, axis=-1)
    passes = cumulative > numbers[..., tf.newaxis] * cumulative[..., -1:]
    passes = tf.cast(passes & (weights > 0), tf.int32)
    place = tf.argmax(passes, axis=-1, output_type=tf.int32)  # the first 1
    if top_k or top_p < 1:
        return tf.gather(ranked, place, batch_dims=2)
    return place
