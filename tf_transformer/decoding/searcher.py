"""Source ids to hypotheses: beam search or sampling with a model, compiled for any batch.

B batch, S source length, P longest prefix, N and G as in `rules.Grammar`.
"""

import functools
from collections.abc import Callable, Sequence

import tensorflow as tf

from tf_transformer.config import DecodingConfig, SamplingConfig
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.decoding.candidates import least_tokens
from tf_transformer.decoding.ensemble import Ensemble
from tf_transformer.decoding.hypotheses import Hypotheses
from tf_transformer.decoding.rules import Grammar
from tf_transformer.decoding.sampling import sample
from tf_transformer.decoding.search_loop import SearchModel
from tf_transformer.decoding.shortlist import Shortlist, restricted
from tf_transformer.decoding.text_codec import IDS, TextCodec
from tf_transformer.models.transformer import Transformer


class Searcher:
    """Searches for translations of source ids, or samples them; usable inside a graph too.

    Args:
        model: a trained `Transformer`, or an `Ensemble` of them.
        codec: determines the length limit for each source.
        decoding: beam size, alpha and rules.
        num_hypotheses: hypotheses of each source, at most the beam size unless sampled.
        shortlist: restricts a search to tokens that are likely for its source.

    Attributes:
        compiled: `compiled(sampling, prefixed, grammar, alphas)` is a TensorFlow function
            `find(source, options) -> Hypotheses`, traced once for all batches. Options are
            tensors by name: prefix, if `prefixed`, and seed or the grammar's context.

    Raises:
        ValueError: if the shortlist's vocabulary is not the model's.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        codec: TextCodec,
        decoding: DecodingConfig,
        num_hypotheses: int = 1,
        shortlist: Shortlist | None = None,
    ) -> None:
        if shortlist and shortlist.vocab_size != model.vocab_size:
            raise ValueError(
                "`shortlist` must have the model's vocabulary size. Received: shortlist "
                f"{shortlist.vocab_size}, model {model.vocab_size}."
            )
        self._model = model
        self._codec = codec
        self._decoding = decoding
        self._num_hypotheses = num_hypotheses
        self._shortlist = shortlist
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

        Raises:
            ValueError: if there are both a grammar and a shortlist.
        """
        if alpha is not None:
            alpha = tf.where(alpha > 0, alpha, 0.0)  # NaN is not above 0 either
        model: SearchModel = self._model
        choice = None
        self._refuse_with_shortlist("grammar", grammar)
        if self._shortlist:
            least = least_tokens(self._decoding.beam_size)
            choice = self._shortlist.choose(source, prefix, least)
            model = restricted(self._model, choice)
            prefix = None if prefix is None else tf.gather(choice.indices, prefix)
        hypotheses = beam_search(
            model.step_function(),
            model.initial_cache(source),
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
        if choice is None:
            return hypotheses
        return hypotheses._replace(tokens=tf.gather(choice.ids, hypotheses.tokens))

    def sample(
        self,
        source: tf.Tensor,
        sampling: SamplingConfig,
        *,
        seed: tf.Tensor,
        prefix: tf.Tensor | None = None,
    ) -> Hypotheses:
        """Draws hypotheses; `seed` is int32 [B], the seed of each sentence.

        Raises:
            ValueError: if there is a shortlist.
        """
        self._refuse_with_shortlist("sampling", sampling)
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

    def _refuse_with_shortlist(self, name: str, value: object) -> None:
        if self._shortlist and value:
            raise ValueError(
                f"`{name}` needs the whole vocabulary. Received: a shortlist as well."
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
