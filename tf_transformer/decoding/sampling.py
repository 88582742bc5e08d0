"""Sampling of translations: a search whose beams are independent draws from the model.

B batch, W samples of a sentence, V vocabulary, k tokens that may be drawn.
"""

from collections.abc import Sequence

import tensorflow as tf

from tf_transformer.decoding.beam_search import (
    Cache,
    Hypotheses,
    Search,
    State,
    StepFunction,
    started,
)
from tf_transformer.decoding.candidates import Candidates, blocked_top_k, drawn_candidates
from tf_transformer.decoding.rules import Applied, NextToken


def sample(
    step: StepFunction,
    cache: Cache,
    max_lengths: tf.Tensor,
    rules: Sequence[Applied] = (),
    *,
    num_samples: int,
    seeds: tf.Tensor,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    few_sizes: bool = False,
) -> Hypotheses:
    """Draws translations token by token; the same seeds draw the same ones.

    A token is drawn from softmax(logits / temperature) among those that the rules allow,
    then among the `top_k` most probable of them, then among the fewest of these whose
    probabilities sum to at least `top_p` (Fan et al. 2018; Holtzman et al. 2020, section 3.1).

    W = `num_samples` are drawn independently for each sentence; some may be equal. They depend
    on its seed, of `seeds` int32 [B], and neither on its row nor on the rest of the batch. A
    temperature, from 0.01 to 100, sharpens the distribution below 1 and flattens it above 1. A
    `top_k` of 0 means the whole vocabulary. With `top_p`, in (0, 1], below 1 and no `top_k`,
    the vocabulary is sorted at every step. Other arguments are as for `beam_search`.

    The samples are returned most probable first. Log-probabilities are those of the model, not
    of the sampling distribution, and scores equal them.
    """
    keys = tf.stack([seeds, tf.zeros_like(seeds)], axis=1)  # [B, 2]

    def choose(logits: tf.Tensor, state: State, next_token: NextToken) -> Candidates:
        logits = tf.ensure_shape(logits, [None, num_samples, None])
        index = tf.shape(state.tokens)[-1]
        numbers = _uniform_numbers(state.settings["keys"], index, num_samples)

        def draw(logits: tf.Tensor) -> tf.Tensor:
            return _draw(logits / temperature, numbers, top_k, top_p)

        return drawn_candidates(logits, state.log_probs, next_token, draw)

    # All beams are in use from the start, since none competes with another.
    used = [0.0] * num_samples
    book, state = started(cache, max_lengths, rules, {"keys": keys}, used, num_samples)
    return Search(step, book, choose, tf.constant(0.0), 0, few_sizes).run(state)


def _uniform_numbers(keys: tf.Tensor, index: tf.Tensor, count: int) -> tf.Tensor:
    """Draws numbers in [0, 1) for step `index`: [B, 2] -> [B, W]."""
    return tf.map_fn(
        lambda key: tf.random.stateless_uniform([count], tf.random.fold_in(key, index)),
        keys,
        fn_output_signature=tf.TensorSpec([count], tf.float32),
    )


def _draw(logits: tf.Tensor, numbers: tf.Tensor, top_k: int, top_p: float) -> tf.Tensor:
    """Inverts the cumulative distribution at numbers [B, W] in [0, 1): tokens [B, W]."""
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
    index = tf.argmax(passes, axis=-1, output_type=tf.int32)  # the first 1
    if top_k or top_p < 1:
        return tf.gather(ranked, index, batch_dims=2)
    return index
