"""Text in, text out: tokenise, batch by length, search or sample, restore the order."""

import dataclasses
import functools
import logging
import zlib
from collections.abc import Callable, Sequence

import numpy as np
import tensorflow as tf

from tf_transformer.config import PAD_ID, DecodingConfig, SamplingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.batches import by_length, padded
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.decoding.candidates import least_tokens
from tf_transformer.decoding.ensemble import Ensemble
from tf_transformer.decoding.forced import (
    IDS,
    Attention,
    ForcedDecoder,
    Hypothesis,
    Ids,
    Progress,
)
from tf_transformer.decoding.rules import Grammar
from tf_transformer.decoding.sampling import sample
from tf_transformer.decoding.search import Hypotheses
from tf_transformer.decoding.shortlist import Shortlist, restricted
from tf_transformer.models.transformer import Transformer

__all__ = ["Attention", "Hypothesis", "Translator"]

logger = logging.getLogger(__name__)


class Translator(ForcedDecoder):
    """Translates text with a model and its tokenizer; also scores and aligns translations.

    Args:
        model: a trained `Transformer`, or an `Ensemble` of them.
        tokenizer: the one it was trained with.
        decoding: beam size, alpha, lengths and tokens per batch; the paper's by default.
        num_hypotheses: translations to return for each sentence, at most the beam size unless
            they are sampled.
        shortlist: what a search may translate each sentence with; by default with all tokens.

    Raises:
        ValueError: if the vocabulary of tokenizer or shortlist is not the model's.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
        num_hypotheses: int = 1,
        shortlist: Shortlist | None = None,
    ) -> None:
        super().__init__(model, tokenizer, decoding or DecodingConfig())
        if shortlist and shortlist.vocab_size != model.vocab_size:
            raise ValueError(
                "`shortlist` must be of the model's vocabulary. Received: shortlist "
                f"{shortlist.vocab_size}, model {model.vocab_size}."
            )
        self.num_hypotheses = num_hypotheses
        self.shortlist = shortlist
        self._finder = functools.cache(self._compile_finder)

    def with_decoding(self, decoding: DecodingConfig, num_hypotheses: int) -> "Translator":
        """A translator with the same model, tokenizer and shortlist."""
        return Translator(self.model, self.tokenizer, decoding, num_hypotheses, self.shortlist)

    def translate(
        self,
        texts: Sequence[str],
        progress: Progress | None = None,
        *,
        prefixes: Sequence[str] | None = None,
        sampling: SamplingConfig | None = None,
        grammar: Grammar | None = None,
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each text, best first; a blank text gives blank ones.

        Args:
            texts: any number of sentences.
            progress: called with the number of sentences done so far.
            prefixes: how the translation of each text begins; blank leaves it free. What
                follows may go on with the last word. One that reaches the length limit is cut
                there, with a warning.
            sampling: draw the hypotheses instead; the most probable is first, and scores are
                log-probabilities. The same seed and text draw the same, in any company.
            grammar: what keeps a beam search to well-formed hypotheses.

        Raises:
            ValueError: if there are not as many prefixes as texts, or two of `sampling`,
                `grammar` and a shortlist.
        """
        if sampling and grammar:
            raise ValueError("`grammar` is for the search. Received: `sampling` as well.")
        if prefixes is not None and len(prefixes) != len(texts):
            raise ValueError(
                "`prefixes` must be as many as the texts. "
                f"Received: {len(prefixes)} for {len(texts)} texts."
            )
        done = 0
        blank = [Hypothesis("", 0.0, 0.0, 0)] * self.num_hypotheses
        results = [blank] * len(texts)
        sources = self._ids(texts, self.source_limit, "texts")
        begun = None if prefixes is None else self._prefix_ids(prefixes, sources)
        unseeded = sampling and dataclasses.replace(sampling, seed=0)  # a seed is data
        find = self._finder(unseeded, begun is not None, grammar)
        width = self.num_hypotheses if sampling else self.decoding.beam_size
        positions = self.decoding.batch_tokens // width
        for rows in by_length([len(source) for source in sources], positions):
            batch = [sources[row] for row in rows]
            options = {} if begun is None else {"prefix": padded([begun[row] for row in rows])}
            if grammar:
                options["context"] = grammar.context([texts[row] for row in rows])
            if sampling:
                options["seed"] = _seeds(batch, sampling.seed)
            found = self._hypotheses(find(padded(batch), options))
            for row, hypotheses in zip(rows, found, strict=True):
                if len(sources[row]) > 1:  # EOS alone: the text was blank
                    results[row] = hypotheses
            done += len(rows)
            if progress:
                progress(done)
        return results

    def search(
        self,
        source: tf.Tensor,
        *,
        prefix: tf.Tensor | None = None,
        alpha: tf.Tensor | None = None,
        max_lengths: tf.Tensor | None = None,
        grammar: Grammar | None = None,
        context: tf.Tensor | None = None,
    ) -> Hypotheses:
        """Beam search in the graph.

        Args:
            source: int32 [B, S], ids with EOS and padding.
            prefix: int32 [B, P], see `beam_search`.
            alpha: float32 [B], instead of the configured one; below 0 counts as 0.
            max_lengths: int32 [B], at most so many tokens, within the configured limits.
            grammar, context: see `beam_search`.

        Raises:
            ValueError: if there are both a grammar and a shortlist.
        """
        if alpha is not None:
            alpha = tf.where(alpha > 0, alpha, 0.0)  # and NaN is not
        model, choice = self.model, None
        self._refuse_with_shortlist("grammar", grammar)
        if self.shortlist:
            choice = self.shortlist.choose(
                source, prefix, least_tokens(self.decoding.beam_size)
            )
            model = restricted(self.model, choice)
            prefix = None if prefix is None else tf.gather(choice.places, prefix)
        found = beam_search(
            model.step_function(),
            model.initial_cache(source),
            self._max_lengths(source, max_lengths),
            beam_size=self.decoding.beam_size,
            num_hypotheses=self.num_hypotheses,
            alpha=self.decoding.alpha if alpha is None else alpha,
            prefix=prefix,
            grammar=grammar,
            context=context,
            **self._rules(source),
        )
        if choice is None:
            return found
        return found._replace(tokens=tf.gather(choice.ids, found.tokens))

    def _refuse_with_shortlist(self, name: str, value) -> None:
        if self.shortlist and value:
            raise ValueError(
                f"`{name}` chooses among the whole vocabulary. Received: a shortlist as well."
            )

    def sample(
        self,
        source: tf.Tensor,
        sampling: SamplingConfig,
        *,
        seed: tf.Tensor,
        prefix: tf.Tensor | None = None,
    ) -> Hypotheses:
        """As `search`, but draws; `seed` is int32 [B], the seed of each sentence.

        Raises:
            ValueError: if there is a shortlist.
        """
        self._refuse_with_shortlist("sampling", sampling)
        return sample(
            self.model.step_function(),
            self.model.initial_cache(source),
            self._max_lengths(source),
            num_samples=self.num_hypotheses,
            seed=seed,
            temperature=sampling.temperature,
            top_k=sampling.top_k,
            top_p=sampling.top_p,
            prefix=prefix,
            **self._rules(source),
        )

    def length_limits(self, texts: Sequence[str]) -> list[int]:
        """The most tokens that the translation of each text may have, EOS counted."""
        if not texts:
            return []
        ids, _ = self.encode(tf.constant(list(texts), tf.string))
        return self._max_lengths(ids.to_tensor(PAD_ID)).numpy().tolist()

    def encode_prefix(
        self, prefixes: tf.Tensor, source_lengths: tf.Tensor, given: tf.Tensor | None = None
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """How translations begin, strings [B], as ids [B, None] without EOS, in the graph.

        Args:
            prefixes: strings [B].
            source_lengths: int32 [B], of the sources in tokens, EOS counted.
            given: int32 [B], the limits that `search` takes as `max_lengths`.

        Returns:
            The ids, and bool [B]: whether they were cut at the limit of the translation.
        """
        closed, cut = self.encode(prefixes, self.target_limit, target=True)
        lengths = tf.cast(closed.row_lengths(), tf.int32)
        limits = self._limits(source_lengths, given)
        kept = tf.minimum(lengths, limits) - 1  # and EOS
        return tf.RaggedTensor.from_tensor(closed.to_tensor(), kept), cut | (lengths > limits)

    def _max_lengths(self, source: tf.Tensor, given: tf.Tensor | None = None) -> tf.Tensor:
        lengths = tf.math.count_nonzero(source != PAD_ID, axis=1, dtype=tf.int32)
        return self._limits(lengths, given)

    def _limits(self, source_lengths: tf.Tensor, given: tf.Tensor | None = None) -> tf.Tensor:
        """The most tokens of translations [B] of sources of these lengths, EOS counted."""
        max_lengths = source_lengths + self.decoding.max_extra_length
        for limit in (self.decoding.max_length, self.model.longest_target):
            if limit:
                max_lengths = tf.minimum(max_lengths, limit)
        if given is not None:
            max_lengths = tf.clip_by_value(given, 1, max_lengths)
        return max_lengths

    def _rules(self, source: tf.Tensor) -> dict:
        """What the configuration asks of the search beyond the limits."""
        rules: dict = {"no_repeat_ngram": self.decoding.no_repeat_ngram}
        if self.decoding.min_length > 1:
            rules["min_lengths"] = tf.fill([tf.shape(source)[0]], self.decoding.min_length)
        return rules

    def _compile_finder(
        self, sampling: SamplingConfig | None, prefixed: bool, grammar: Grammar | None
    ) -> Callable:
        """`find(source, options) -> Hypotheses` as a graph, for any batch."""
        specs = {"prefix": IDS} if prefixed else {}
        if grammar:
            specs["context"] = tf.TensorSpec([None, None, None], tf.bool)
        if sampling:
            specs["seed"] = tf.TensorSpec([None], tf.int32)

        def find(source: tf.Tensor, options: dict[str, tf.Tensor]) -> Hypotheses:
            if sampling:
                return self.sample(source, sampling, **options)
            return self.search(source, grammar=grammar, **options)

        return tf.function(find, [IDS, specs], autograph=False)

    def _prefix_ids(self, prefixes: Sequence[str], sources: Ids) -> Ids:
        """The ids of each prefix, without EOS; says how many were cut."""
        lengths = tf.constant([len(source) for source in sources], tf.int32)
        ragged, cut = self.encode_prefix(tf.constant(list(prefixes), tf.string), lengths)
        if number := int(tf.math.count_nonzero(cut)):
            logger.warning("prefixes cut at the length limit of their translation: %d", number)
        return [np.asarray(ids, "int32") for ids in ragged.numpy()]

    def _hypotheses(self, found: Hypotheses) -> list[list[Hypothesis]]:
        batch, number, length = found.tokens.shape
        flat = tf.reshape(found.tokens, (batch * number, length))
        texts = [text.decode("utf-8") for text in self.tokenizer.detokenize(flat).numpy()]
        columns = (found.scores, found.log_probs, found.lengths)
        scores, log_probs, sizes = (tf.reshape(column, [-1]).numpy() for column in columns)
        flat_hypotheses = [
            Hypothesis(text, float(score), float(log_prob), int(size))
            for text, score, log_prob, size in zip(texts, scores, log_probs, sizes, strict=True)
        ]
        return [flat_hypotheses[row * number : (row + 1) * number] for row in range(batch)]


def _seeds(sources: Ids, seed: int) -> np.ndarray:
    """A seed for each source, int32 [B], which nothing else in the batch enters."""
    sums = [zlib.crc32(source.tobytes(), seed) for source in sources]
    return np.array(sums, np.uint32).view(np.int32)
