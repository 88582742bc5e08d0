"""Text in, text out: encode, batch by length, search or sample, decode, restore the order."""

import dataclasses
import zlib
from collections.abc import Callable, Sequence

import numpy as np

from tf_transformer.config import DecodingConfig, SamplingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.alignment import Alignment, Attention
from tf_transformer.decoding.batches import Progress, in_batches, padded
from tf_transformer.decoding.ensemble import Ensemble
from tf_transformer.decoding.forced_scorer import ForcedScorer
from tf_transformer.decoding.hypotheses import Hypotheses, Translation
from tf_transformer.decoding.lite_model import LiteModel, LiteSearcher, require_lite
from tf_transformer.decoding.rules import Grammar
from tf_transformer.decoding.searcher import Searcher
from tf_transformer.decoding.text_codec import Ids, TextCodec
from tf_transformer.decoding.threads import most_streams
from tf_transformer.models.transformer import Transformer


class BatchTranslator:
    """Translates lists of texts in batches of similar length; also scores and aligns.

    `tasks.translation.translator` has the class for users, which also takes a single string.

    Args:
        model: a trained `Transformer`, or an `Ensemble` of them.
        tokenizer: the tokenizer that the model was trained with.
        decoding: beam size, alpha, lengths and tokens per batch; the paper's by default.
        num_hypotheses: translations to return for each sentence, at most the beam size unless
            they are sampled.
        lite: searches in LiteRT instead of the model, which still scores and aligns.
        streams: batches searched at the same time; None for as many as the cores allow.

    Attributes:
        codec: text to ids and back, see `TextCodec`.
        searcher: ids to hypotheses, inside a graph too, see `Searcher`.
        scorer: scores and attention of given translations, see `ForcedScorer`.

    Raises:
        ValueError: if the tokenizer's vocabulary is not the model's.
        UserError: if `lite` is combined with an ensemble.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
        num_hypotheses: int = 1,
        lite: LiteModel | None = None,
        *,
        streams: int | None = None,
    ) -> None:
        if lite:
            require_lite(lite.precision, isinstance(model, Ensemble))
        decoding = decoding or DecodingConfig()
        self._streams = streams or (most_streams(lite.threads) if lite else None)
        self.model, self.tokenizer, self.decoding = model, tokenizer, decoding
        self.num_hypotheses, self.lite = num_hypotheses, lite
        self.codec = TextCodec(model, tokenizer, decoding)
        self.searcher = Searcher(model, self.codec, decoding, num_hypotheses)
        self._compiled: Callable[..., Callable[..., Hypotheses]] = self.searcher.compiled
        if lite:
            self._compiled = LiteSearcher(lite, self.codec, decoding, num_hypotheses).compiled
        self.scorer = ForcedScorer(model, self.codec, decoding)

    def with_decoding(
        self, decoding: DecodingConfig, num_hypotheses: int, streams: int | None = None
    ) -> "BatchTranslator":
        """Returns a translator with other settings, but the same model."""
        streams = streams or self._streams
        return BatchTranslator(
            self.model, self.tokenizer, decoding, num_hypotheses, self.lite, streams=streams
        )

    def translate(
        self,
        texts: Sequence[str],
        progress: Progress | None = None,
        *,
        prefixes: Sequence[str] | None = None,
        sampling: SamplingConfig | None = None,
        grammar: Grammar | None = None,
    ) -> list[list[Translation]]:
        """Returns the best hypotheses of each text, best first; empty ones for a blank text.

        Args:
            texts: any number of sentences.
            progress: called with the number of sentences done so far.
            prefixes: beginnings of the translations, blank to leave one free. The translation
                may continue the prefix's last word. A prefix that reaches the length limit is
                cut there, with a warning.
            sampling: draws the hypotheses instead; the most probable is first, and scores are
                log-probabilities. Samples depend only on the seed and their own text.
            grammar: restricts a beam search to well-formed hypotheses.

        Raises:
            ValueError: if the numbers of prefixes and texts differ, or `sampling` and
                `grammar` are combined.
        """
        if sampling and grammar:
            raise ValueError("`grammar` restricts a beam search. Received: `sampling` as well.")
        if prefixes is not None and len(prefixes) != len(texts):
            raise ValueError(
                "`prefixes` must have one entry for each text. "
                f"Received: {len(prefixes)} for {len(texts)} texts."
            )
        sources = self.codec.source_ids(texts)
        begin = None if prefixes is None else self.codec.prefix_ids(prefixes, sources)
        seeds = None if sampling is None else _seeds(sources, sampling.seed)
        unseeded = sampling and dataclasses.replace(sampling, seed=0)  # seeds are inputs
        find = self._compiled(unseeded, begin is not None, grammar)
        width = self.num_hypotheses if sampling else self.decoding.beam_size

        def search(rows: list[int]) -> Hypotheses:
            options = {} if begin is None else {"prefix": padded([begin[row] for row in rows])}
            if grammar:
                options["context"] = grammar.context([texts[row] for row in rows])
            if seeds is not None:
                options["seed"] = seeds[rows]
            return find(padded([sources[row] for row in rows]), options)

        return self._in_batches(sources, search, width, self.num_hypotheses, progress)

    def best_by_alpha(
        self, texts: Sequence[str], alphas: Sequence[float], progress: Progress | None = None
    ) -> list[list[Translation]]:
        """Returns the best hypothesis of each text under each of several length penalties.

        Each is what `translate` finds with that alpha and no `lookahead`, but all come from a
        single search.

        Args:
            texts: any number of sentences.
            alphas: exponents of the penalty, used instead of the configured one.
            progress: called with the number of sentences done so far.
        """
        sources = self.codec.source_ids(texts)
        find = self._compiled(alphas=tuple(alphas))

        def search(rows: list[int]) -> Hypotheses:
            return find(padded([sources[row] for row in rows]), {})

        width = self.decoding.beam_size
        return self._in_batches(sources, search, width, len(alphas), progress)

    def _in_batches(
        self,
        sources: Ids,
        search: Callable[[list[int]], Hypotheses],
        width: int,
        count: int,
        progress: Progress | None,
    ) -> list[list[Translation]]:
        """Returns the `count` hypotheses that `search` finds for each source, in batches."""
        results = [[Translation("", 0.0, 0.0, 0)] * count] * len(sources)
        lengths = [len(source) for source in sources]
        positions = self.decoding.batch_tokens // width
        batches = in_batches(lengths, positions, search, progress, streams=self._streams)
        for rows, hypotheses in batches:
            for row, decoded in zip(rows, self.codec.decode(hypotheses), strict=True):
                if lengths[row] > 1:  # EOS alone: the text was blank
                    results[row] = decoded
        return results

    def score(
        self, sources: Sequence[str], targets: Sequence[str], progress: Progress | None = None
    ) -> list[Translation]:
        """Returns given translations with their log-probability; see `ForcedScorer.score`."""
        return self.scorer.score(sources, targets, progress)

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        progress: Progress | None = None,
        *,
        layer: int | None = None,
    ) -> list[Alignment]:
        """Returns the aligned words of each pair; see `ForcedScorer.align`."""
        return self.scorer.align(sources, targets, progress, layer=layer)

    def attention(self, sources: Sequence[str], targets: Sequence[str]) -> list[Attention]:
        """Returns all attention weights of each pair; see `ForcedScorer.attention`."""
        return self.scorer.attention(sources, targets)


def _seeds(sources: Ids, seed: int) -> np.ndarray:
    """Returns a seed for each source, int32 [B], independent of the rest of the batch."""
    sums = [zlib.crc32(source.tobytes(), seed) for source in sources]
    return np.array(sums, np.uint32).view(np.int32)
