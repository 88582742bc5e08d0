"""Source ids to hypotheses: beam search or sampling with a model, compiled for any batch.

B batch, S source length, P longest prefix, N and G as in `rules.Grammar`.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_transformer.config import DecodingConfig, SamplingConfig
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.decoding.ensemble import Ensemble
from tf_transformer.decoding.hypotheses import Hypotheses
from tf_transformer.decoding.rules import Grammar
from tf_transformer.decoding.sampling import sample
from tf_transformer.decoding.text_codec import IDS, TextCodec
from tf_transformer.models.transformer import Transformer


class Searcher:
    """Searches for translations of source ids, or samples them; usable inside a graph too.

    Args:
        model: a trained `Transformer`, or an `Ensemble` of them.
        codec: determines the length limit for each source.
        decoding: beam size, alpha and rules.
        num_hypotheses: hypotheses of each source, at most the beam size unless sampled.

    Attributes:
        compiled: `compiled(sampling, prefixed, grammar, alphas)` is a TensorFlow function
            `find(source, options) -> Hypotheses`, traced once for all batches. Options are
            tensors by name: prefix, if `prefixed`, and seed or the grammar's context.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        codec: TextCodec,
        decoding: DecodingConfig,
        num_hypotheses: int = 1,
    ) -> None:
        self._model = model
        self._codec = codec
        self._decoding = decoding
        self._num_hypotheses = num_hypotheses
        self.compiled = functools.cache(self._compile)

    def search(
        self,
        source: tf.Tensor,
        *,
        prefix: tf.Tensor | None = None,
        alpha: tf.Tensor | None = None,
        alphas: Sequence[float] = (),
        max_lengths: tf.Tensor | None = None,
        grammar: Grammar | None = None,
        context: tf.Tensor | None = None,
    ) -> Hypotheses:
        """Finds the best hypotheses by beam search.

        Args:
            source: int32 [B, S], ids with EOS and padding.
            prefix: int32 [B, P], see `beam_search`.
            alpha: float32 [B], instead of the configured one; negative values count as 0.
            alphas: see `beam_search`.
            max_lengths: int32 [B], limits that may only lower the configured ones.
            grammar: see `beam_search`.
            context: see `beam_search`.
        """
        if alpha is not None:
            alpha = tf.where(alpha > 0, alpha, 0.0)  # NaN is not above 0 either
        return beam_search(
            self._model.step_function(),
            self._model.initial_cache(source),
            self._codec.max_lengths(source, max_lengths),
            beam_size=self._decoding.beam_size,
            num_hypotheses=self._num_hypotheses,
            alpha=self._decoding.alpha if alpha is None else alpha,
            alphas=alphas,
            lookahead=self._decoding.lookahead,
            prefix=prefix,
            grammar=grammar,
            context=context,
            **self._rules(source),
        )

    def sample(
        self,
        source: tf.Tensor,
        sampling: SamplingConfig,
        *,
        seed: tf.Tensor,
        prefix: tf.Tensor | None = None,
    ) -> Hypotheses:
        """Draws hypotheses; `seed` is int32 [B], the seed of each sentence."""
        return sample(
            self._model.step_function(),
            self._model.initial_cache(source),
            self._codec.max_lengths(source),
            num_samples=self._num_hypotheses,
            seed=seed,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            prefix=prefix,
            **self._rules(source),
        )

    def _rules(self, source: tf.Tensor) -> dict:
        """Returns the configured rules, other than length limits, as arguments of a search."""
        rules: dict = {"no_repeat_ngram": self._decoding.no_repeat_ngram}
        if self._decoding.min_length > 1:
            rules["min_lengths"] = tf.fill([tf.shape(source)[0]], self._decoding.min_length)
        return rules

    def _compile(
        self,
        sampling: SamplingConfig | None = None,
        prefixed: bool = False,
        grammar: Grammar | None = None,
        alphas: tuple[float, ...] = (),
    ) -> Callable:
        specs = {"prefix": IDS} if prefixed else {}
        if grammar:
            specs["context"] = tf.TensorSpec([None, None, None], tf.bool)
        if sampling:
            specs["seed"] = tf.TensorSpec([None], tf.int32)

        def find(source: tf.Tensor, options: dict[str, tf.Tensor]) -> Hypotheses:
            if sampling:
                return self.sample(source, sampling, **options)
            return self.search(source, grammar=grammar, alphas=alphas, **options)

        return tf.function(find, [IDS, specs], autograph=False)
