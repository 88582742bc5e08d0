"""Base class of the translators: a string gives one result, a list gives a list."""

import dataclasses
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Unpack, overload

from tf_transformer.config import (
    SAMPLING,
    SETTINGS,
    DecodingConfig,
    SamplingConfig,
    SearchOptions,
)
from tf_transformer.config.settings import Setting, nearest
from tf_transformer.decoding.batches import Progress
from tf_transformer.decoding.hypotheses import Translation
from tf_transformer.errors import UserError, quoted
from tf_transformer.evaluation.bleu import Scores, score_translations
from tf_transformer.strings import Strings, one_or_more, pairs, strings

# Search settings that are options of methods, without their prefix.
_DECODING = {name.partition(".")[2]: SETTINGS[name] for name in SETTINGS if "decoding." in name}
del _DECODING["checkpoint"]  # chosen when a run is loaded


@dataclass(frozen=True)
class Call:
    """Arguments of `translate`, with texts as lists and `number` results for each."""

    texts: list[str]
    prefixes: list[str] | None
    number: int
    sample: bool
    options: dict[str, Any]
    progress: Progress | None


class BaseTranslator(ABC):
    """Base class of the translators; a subclass runs the model.

    Methods that take texts return one result for a string and a list for a list.
    """

    bleu_tokenizer = "13a"  # the default of `evaluate`

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
            n_best: number of translations of each sentence, best first; None returns only the
                best, not in a list.
            prefix: forced beginning of the translation, "" for none; a list for a list.
            sample: draw translations instead of searching for the best.
            progress: called with the number of sentences done so far.
            **options: search settings that replace those of `decoding`: `beam_size`, `alpha`
                (exponent of the length penalty), `max_length`, `min_length`,
                `no_repeat_ngram`, `lookahead`, `max_extra_length`, `max_source_length` and
                `batch_tokens`; with `sample`, `temperature`, `top_k`, `top_p` and `seed`.

        Returns:
            A `Translation`, a `str` with its `score`, `log_prob` and `num_tokens`; a list of
            them for a list of texts or with `n_best`; a list of lists with both.

        Raises:
            TypeError: if the texts are neither a string nor a list of strings.
            UserError: if there is no such option, or a value is out of range.
        """
        one, sources = one_or_more("texts", texts)
        begin = None
        if prefix is not None:
            one, sources, begin = pairs(texts=texts, prefix=prefix)
        number = 1 if n_best is None else Setting(int).check("n_best", n_best)
        ranked = self._search(Call(sources, begin, number, sample, options, progress))
        results = [best for best, *_ in ranked] if n_best is None else ranked
        return results[0] if one else results

    # fmt: off
    @overload
    def score(self, source: str, target: str, *, alpha: float | None = None,
              progress: Progress | None = None) -> Translation: ...
    @overload
    def score(self, source: Strings, target: Strings, *, alpha: float | None = None,
              progress: Progress | None = None) -> list[Translation]: ...
    # fmt: on
    def score(self, source, target, *, alpha=None, progress=None):
        """Returns given translations with their log-probabilities.

        Args:
            source: a sentence, or a list of them.
            target: its translation; a list for a list.
            alpha: exponent of the length penalty; None for that of `decoding`.
            progress: called with the number of sentences done so far.
        """
        one, sources, targets = pairs(source=source, target=target)
        scored = self._score(sources, targets, alpha, progress)
        return scored[0] if one else scored

    def evaluate(
        self,
        source: Strings,
        *references: Strings,
        lowercase: bool = False,
        tokenize: str | None = None,
        progress: Progress | None = None,
        **options: Unpack[SearchOptions],
    ) -> Scores:
        """Translates sentences and scores the translations.

        Args:
            source: the sentences.
            *references: one or more sets of references, each with one per sentence.
            lowercase: whether to ignore case.
            tokenize: sacreBLEU's tokeniser; "none" for text that is already tokenised; None for
                the setting data.bleu_tokenizer of the run or export, or 13a without one.
            progress: called with the number of sentences done so far.
            **options: search settings; see `translate`.

        Raises:
            ValueError: if `source` and `references` differ in length or are empty, or if
                `n_best` is given.
        """
        if "n_best" in options:
            raise ValueError("`evaluate` scores the best translation of each: omit `n_best`.")
        sources = strings("source", source)
        sets = [strings("references", each) for each in references]
        counts = [len(each) for each in (sources, *sets)]
        if not (sources and sets) or len({*counts}) > 1:
            raise ValueError(
                "`source` and each of `references` must have the same number of sentences, at "
                f"least one. Received: {counts}."
            )
        translations = self.translate(sources, progress=progress, **options)
        tokens = tokenize or self.bleu_tokenizer
        return score_translations(translations, *sets, lowercase=lowercase, tokenize=tokens)

    @abstractmethod
    def _search(self, call: Call) -> Sequence[Sequence[Translation]]:
        """Returns the best translations of each text."""

    @abstractmethod
    def _score(
        self,
        sources: list[str],
        targets: list[str],
        alpha: float | None,
        progress: Progress | None,
    ) -> list[Translation]:
        """Returns the targets with their log-probabilities."""


def search_options(
    options: dict[str, Any], decoding: DecodingConfig, sample: bool = False
) -> tuple[DecodingConfig, SamplingConfig | None]:
    """Returns `decoding` with `options` applied and, with `sample`, the sampling settings.

    Raises:
        UserError: if there is no such option, a value is out of range, a sampling option is
            given without `sample`, or a beam-search option with it.
    """
    known = _DECODING | SAMPLING
    for name in options:
        if name not in known:
            raise UserError(f"There is no option {quoted(name)}.{nearest(name, known)}")
    values = {name: known[name].check(name, value) for name, value in options.items()}
    sampling = {name: value for name, value in values.items() if name in SAMPLING}
    if sampling and not sample:
        raise UserError(
            f"`{next(iter(sampling))}` needs `sample=True`. Received: `sample=False`."
        )
    of_beams = ("beam_size", "alpha", "lookahead")
    if wrong := [name for name in of_beams if sample and name in values]:
        raise UserError(f"`sample=True` draws and does not search: leave out `{wrong[0]}`.")
    search = {name: value for name, value in values.items() if name in _DECODING}
    decoding = dataclasses.replace(decoding, **search)
    return decoding, SamplingConfig(**sampling) if sample else None
