"""Translator for users: one string in, one result out; a list in, a list out."""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, Unpack, overload

from tf_transformer.api.options import search_options
from tf_transformer.config import DecodingConfig, SearchOptions
from tf_transformer.config.settings import Setting
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.attention import Alignment, Attention
from tf_transformer.decoding.batches import Progress
from tf_transformer.decoding.ensemble import Ensemble
from tf_transformer.decoding.hypotheses import Hypothesis, Translation
from tf_transformer.decoding.lite_model import LiteModel
from tf_transformer.decoding.shortlist import Shortlist
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.errors import UserError
from tf_transformer.evaluation.scores import Scores, score_translations
from tf_transformer.models.transformer import Transformer
from tf_transformer.serving import publish
from tf_transformer.serving.gate import Gate
from tf_transformer.serving.lite_export import export_lite
from tf_transformer.strings import Strings, one_or_more, pairs, strings

Card = Callable[[DecodingConfig], dict[str, Any]]


class Translator:
    """Translates, scores and aligns with a model and its tokenizer.

    Where a method takes texts, one string gives one result and a list gives a list.

    Args:
        model: a trained `Transformer`, or an `Ensemble` of them.
        tokenizer: the one it was trained with.
        decoding: options of the search; the paper's by default.
        shortlist: restricts a search to tokens that are likely for its source.
        lite: searches in LiteRT, in place of the model.
        card: makes the model card of an export from its options of the search.
    """

    def __init__(
        self,
        model: Transformer | Ensemble,
        tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
        *,
        shortlist: Shortlist | None = None,
        lite: LiteModel | None = None,
        card: Card | None = None,
    ) -> None:
        self.model, self.tokenizer = model, tokenizer
        self.decoding = decoding or DecodingConfig()
        self._shortlist, self._lite, self._card = shortlist, lite, card
        self._batches = functools.lru_cache(maxsize=8)(self._make_batches)

    def _make_batches(self, decoding: DecodingConfig, number: int) -> BatchTranslator:
        return BatchTranslator(
            self.model, self.tokenizer, decoding, number, self._shortlist, self._lite
        )

    # fmt: off
    @overload
    def translate(self, texts: str, *, n_best: None = None, prefix: str | None = None,
                  sample: bool = False, progress: Progress | None = None,
                  **options: Unpack[SearchOptions]) -> Translation: ...
    @overload
    def translate(self, texts: str, *, n_best: int, prefix: str | None = None,
                  sample: bool = False, progress: Progress | None = None,
                  **options: Unpack[SearchOptions]) -> list[Translation]: ...
    @overload
    def translate(self, texts: Strings, *, n_best: None = None, prefix: Strings | None = None,
                  sample: bool = False, progress: Progress | None = None,
                  **options: Unpack[SearchOptions]) -> list[Translation]: ...
    @overload
    def translate(self, texts: Strings, *, n_best: int, prefix: Strings | None = None,
                  sample: bool = False, progress: Progress | None = None,
                  **options: Unpack[SearchOptions]) -> list[list[Translation]]: ...
    # fmt: on
    def translate(
        self, texts, *, n_best=None, prefix=None, sample=False, progress=None, **options
    ):
        """Translates a sentence, or a list of sentences.

        Args:
            texts: a string, or a list of strings.
            n_best: number of translations of each, best first; None for the best alone.
            prefix: beginning of the translation, "" to leave it free; a list for a list.
            sample: draw translations instead of searching for the best.
            progress: called with the number of sentences done so far.
            **options: of the search, where they differ from `decoding`: `beam_size`, `alpha`
                (exponent of the length penalty), `max_length`, `min_length`,
                `no_repeat_ngram`, `max_extra_length`, `max_source_length` and `batch_tokens`;
                with `sample`, `temperature`, `top_k`, `top_p` and `seed`.

        Returns:
            A `Translation`, whose `str` is its text; a list of them for a list of texts, or
            for `n_best`; a list of such lists for both.

        Raises:
            TypeError: if the texts are neither a string nor a list of strings.
            UserError: if there is no such option, or a value is out of its range.
        """
        one, sources = one_or_more("texts", texts)
        begin = None
        if prefix is not None:
            one, sources, begin = pairs(texts=texts, prefix=prefix)
        number = 1 if n_best is None else Setting(int).check("n_best", n_best)
        found = self._search(sources, begin, number, sample, options, progress)
        results = [ranked[0] for ranked in found] if n_best is None else found
        return results[0] if one else results

    def _search(
        self,
        texts: list[str],
        prefixes: list[str] | None,
        number: int,
        sample: bool,
        options: dict[str, Any],
        progress: Progress | None,
    ) -> Sequence[Sequence[Translation]]:
        """Finds hypotheses of each text; an export overrides it."""
        decoding, sampling = search_options(options, self.decoding, sample)
        most = decoding.beam_size
        if not (number >= 1 and (sample or number <= most)):
            raise UserError(
                f"`n_best` must be between 1 and the beam size, {most}. Received: {number}."
            )
        found = self._batches(decoding, number).translate(
            texts, progress, prefixes=prefixes, sampling=sampling
        )
        # Fewer than asked for are filled up with hypotheses of no token, as a blank text is.
        return [[each for each in ranked if each.num_tokens] or ranked[:1] for ranked in found]

    # fmt: off
    @overload
    def score(self, source: str, target: str, *, alpha: float | None = None,
              progress: Progress | None = None) -> Hypothesis: ...
    @overload
    def score(self, source: Strings, target: Strings, *, alpha: float | None = None,
              progress: Progress | None = None) -> list[Hypothesis]: ...
    # fmt: on
    def score(self, source, target, *, alpha=None, progress=None):
        """Returns given translations with their log-probabilities.

        Args:
            source: a sentence, or a list of them.
            target: its translation; a list for a list.
            alpha: exponent of the length penalty, where it differs from `decoding`.
            progress: called with the number of sentences done so far.
        """
        one, sources, targets = pairs(source=source, target=target)
        scored = self._score(sources, targets, alpha, progress)
        return scored[0] if one else scored

    def _score(
        self,
        sources: list[str],
        targets: list[str],
        alpha: float | None,
        progress: Progress | None,
    ) -> list[Hypothesis]:
        """Scores the targets; an export overrides it."""
        options = {} if alpha is None else {"alpha": alpha}
        decoding, _ = search_options(options, self.decoding)
        return self._batches(decoding, 1).score(sources, targets, progress)

    # fmt: off
    @overload
    def align(self, source: str, target: str | None = None, *,
              layer: int | None = None) -> Alignment: ...
    @overload
    def align(self, source: Strings, target: Strings | None = None, *,
              layer: int | None = None) -> list[Alignment]: ...
    # fmt: on
    def align(self, source, target=None, *, layer=None):
        """Returns the words of a sentence and of its translation that belong together.

        Args:
            source: a sentence, or a list of them.
            target: its translation; a list for a list; None for the model's own.
            layer: the decoder layer whose attention says so, counted from 1; by default layer
                5 of 6, or the same relative depth in other models.
        """
        one, sources, targets = self._pairs(source, target)
        if layer is not None:
            layer = Setting(int).check("layer", layer) - 1
        aligned = self._batches(self.decoding, 1).align(sources, targets, layer=layer)
        return aligned[0] if one else aligned

    # fmt: off
    @overload
    def attention(self, source: str, target: str | None = None) -> Attention: ...
    @overload
    def attention(self, source: Strings, target: Strings | None = None) -> list[Attention]: ...
    # fmt: on
    def attention(self, source, target=None):
        """Returns all attention weights of one pass over a sentence and its translation.

        Args:
            source: a sentence, or a list of them.
            target: its translation; a list for a list; None for the model's own.
        """
        one, sources, targets = self._pairs(source, target)
        weights = self._batches(self.decoding, 1).attention(sources, targets)
        return weights[0] if one else weights

    def _pairs(self, source: Any, target: Any) -> tuple[bool, list[str], list[str]]:
        if target is not None:
            return pairs(source=source, target=target)
        one, sources = one_or_more("source", source)
        return one, sources, [best.text for best in self.translate(sources)]

    def evaluate(
        self,
        source: Strings,
        *references: Strings,
        lowercase: bool = False,
        tokenize: str = "13a",
        progress: Progress | None = None,
        **options: Unpack[SearchOptions],
    ) -> Scores:
        """Translates sentences and scores the translations.

        Args:
            source: the sentences.
            *references: one or more sets of translations, each with one a sentence.
            lowercase: ignore case.
            tokenize: sacreBLEU's tokeniser; "none" for text that is tokenised already.
            progress: called with the number of sentences done so far.
            **options: of the search; see `translate`.
        """
        sources = strings("source", source)
        sets = [strings("references", each) for each in references]
        counts = [len(each) for each in (sources, *sets)]
        if not (sources and sets) or len({*counts}) > 1:
            raise ValueError(
                "`source` and each of `references` must have equally many sentences, at least "
                f"one. Received: {counts}."
            )
        translations = self.translate(sources, progress=progress, **options)
        texts = [translation.text for translation in translations]
        return score_translations(texts, *sets, lowercase=lowercase, tokenize=tokenize)

    def export(
        self,
        output: str | Path,
        *,
        version: int | None = None,
        text: bool = True,
        gate: Gate | None = None,
        format: Literal["savedmodel", "litert"] = "savedmodel",
        **options: Unpack[SearchOptions],
    ) -> Path:
        """Writes a model for TF Serving or LiteRT, after testing it; returns OUTPUT/VERSION.

        Args:
            output: the model's folder.
            version: its number; None for the next free one.
            text: whether the model takes text, else token ids, as LiteRT always does.
            gate: the published model that it must not be worse than; see `serving.gate`. Not
                for LiteRT.
            format: "savedmodel", or "litert": see `serving.lite_export`.
            **options: of the search, where they differ from `decoding`.

        Raises:
            UserError: if the export cannot be written, or fails its test.
        """
        decoding, _ = search_options(dict(options), self.decoding)
        card = self._card(decoding) if self._card else None
        batches = self._make_batches(decoding, 1)
        if format == "litert":
            return export_lite(batches, Path(output), version, card or {})
        if self._lite:
            raise UserError("A SavedModel has no int8. Expected: the format litert.")
        return publish.export(batches, Path(output), version, card, text=text, gate=gate)
