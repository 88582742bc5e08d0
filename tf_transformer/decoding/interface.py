"""The interface of all that translates, runs, exports and LiteRT; and what it returns.

Server, commands and Python use it alike. All settings of a search are arguments of the call.
Nothing here imports TensorFlow.
"""

import functools
import logging
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, NamedTuple, NoReturn, Self

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.base.system import InOneProcess
from tf_transformer.config import DecodingConfig, SamplingConfig
from tf_transformer.data.documents import WIDE
from tf_transformer.data.text import is_visible, utf8
from tf_transformer.decoding.rules import Rule
from tf_transformer.decoding.streams import Progress
from tf_transformer.terms.protection import Protection
from tf_transformer.terms.spans import FAULTS, differences

logger = logging.getLogger(__name__)

_OTHER_PIECES = (
    "word probabilities of other pieces than the search's, since an export scores text: "
    "%d translations; load the run for the search's"
)


class ClosedError(Exception):
    """The model was closed before the answer was computed."""


class Translation(str):
    """A translation: a `str` that carries what the model computed for it.

    Attributes:
        score: log_prob / length_penalty(num_tokens, alpha), by which the search ranks; that of
            samples is log_prob.
        log_prob: natural logarithm of its probability, summed over the tokens.
        num_tokens: number of tokens, EOS counted; 0 for the empty translation of a blank text.
        word_probs: probability of each word between spaces, if the translation was scored.
        tokens: ids of its tokens, EOS included, which `score`, `align` and `attention` of the
            same model read; () if an export translated it.
        source: the text that it translates; None if it stands for itself.
        is_long: whether the source has more tokens than any in training.
        is_cut: whether it ends where its length limit forced it to; None if an export, which
            does not tell its limits, translated it.
        faults: reasons of `warnings` that only the slots of its kept spans show.

    Example:
        >>> translation = Translation("Guten Morgen.", -0.5, -0.6, num_tokens=4)
        >>> print(translation, translation.log_prob)
        Guten Morgen. -0.6
    """

    score: float
    log_prob: float
    num_tokens: int
    word_probs: tuple[float, ...]
    tokens: tuple[int, ...]
    source: str | None = None
    is_long: bool = False
    is_cut: bool | None = None
    faults: tuple[str, ...] = ()

    def __new__(
        cls, text: str, score: float, log_prob: float, num_tokens: int, word_probs=(), tokens=()
    ) -> Self:
        """Returns `text` with its figures; 0 in `word_probs` and `tokens` is padding."""
        self = super().__new__(cls, text)
        self.score, self.log_prob, self.num_tokens = score, log_prob, num_tokens
        self.word_probs = tuple(filter(None, word_probs))
        self.tokens = tuple(filter(None, tokens))
        return self

    def with_text(self, text: str) -> Self:
        """Returns another text with these figures."""
        figures = self.score, self.log_prob, self.num_tokens
        other = type(self)(text, *figures, self.word_probs, self.tokens)
        other.source, other.is_long, other.is_cut = self.source, self.is_long, self.is_cut
        other.faults = self.faults
        return other

    @functools.cached_property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why it looks wrong, () if none; see `looks_wrong`."""
        return () if self.source is None else looks_wrong(self.source, self, self.is_long)

    def copies(self, source: str) -> bool:
        """Tells whether it is the source itself."""
        return self.strip() == source.strip()

    def is_less_probable_than(self, log_prob: float) -> bool:
        """Compares the mean log-probability of its tokens with a limit."""
        return self.log_prob < log_prob * self.num_tokens

    def __getnewargs__(self):
        """Returns the arguments to copy and unpickle it with."""
        return str(self), self.score, self.log_prob, self.num_tokens


# --- Reasons why a translation looks wrong ---------------------------------------------------

LONG = "longer than any in training"  # of a source; the others are of source and translation


def _letters(text: str) -> int:
    return len(text) + 2 * sum(char >= WIDE for char in text)


# By reason, whether it applies to a source and its translation. The guide measures the limits.
REASONS: dict[str, Callable[[str, Translation], bool]] = {
    "blank": lambda source, found: is_visible(source) and not is_visible(found),
    "too short": lambda source, found: _letters(found) < 0.8 * _letters(source) - 15,
    "too long": lambda source, found: _letters(found) > 2 * _letters(source) + 20,
    "copied": lambda source, found: _letters(source) > 20 and found.copies(source),
    "improbable": lambda source, found: found.is_less_probable_than(-1.5),
}
WARNINGS = (LONG, *REASONS, *FAULTS)


def looks_wrong(
    source: str, translation: Translation, is_long: bool = False
) -> tuple[str, ...]:
    """Returns the reasons why a translation looks wrong, () if none applies.

    `is_long` tells whether the source has more tokens than any in training.
    """
    found = (name for name, applies in REASONS.items() if applies(source, translation))
    spans = [each.partition(":")[0] for each in differences(source, translation)]
    return *([LONG] if is_long else []), *found, *dict.fromkeys([*spans, *translation.faults])


# --- Texts as arrays -------------------------------------------------------------------------


class Input(NamedTuple):
    """An input of a signature: string, int32 or float32, and its number of dimensions."""

    type: str
    rank: int


def column(texts: Sequence[str | bytes]) -> np.ndarray:
    """Returns texts as an array of bytes; lone surrogates are kept."""
    return np.array([*map(utf8, texts)], object)


def plain_lists(value: Any) -> Any:
    """Replaces bytes by text in a nest of lists, for JSON."""
    if isinstance(value, list):
        return [plain_lists(item) for item in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


# --- What translates -------------------------------------------------------------------------


class TranslatedText(str):
    """A translated document, with its sentences as pairs of source and translation."""

    sentences: list[tuple[str, Translation]]


def set_sources(
    sources: Iterable[str],
    ranked: Iterable[Iterable[Translation]],
    tokens: Sequence[int],
    longest_trained: int | None,
    limits: Sequence[int | None] | None = None,
) -> None:
    """Tells the translations of each source, which has `tokens`, with EOS, what they are of.

    `limits` are the length limits of the translations of each source, None if unknown.
    """
    limits = limits or [None] * len(tokens)
    for source, translations, size, limit in zip(sources, ranked, tokens, limits, strict=True):
        for each in translations:
            each.source, each.is_long = source, size > (longest_trained or size)
            each.is_cut = None if limit is None else each.num_tokens >= limit


def warn_of_long(lengths: Sequence[int], longest_trained: int | None) -> None:
    """Warns if texts have more tokens, with EOS, than the longest source in training."""
    count = sum(length > longest_trained for length in lengths) if longest_trained else 0
    if count:
        message = "texts longer than any in training, %d tokens: %d"
        logger.warning(message, longest_trained, count)


def token_limits(
    decoding: DecodingConfig,
    longest_source: int | None = None,
    longest_target: int | None = None,
) -> tuple[int, int]:
    """Returns the most tokens of a source, and of a target: that of the longest source.

    EOS is counted. `longest_source` and `longest_target` are a model's own limits.
    """
    source = decoding.max_source_length
    target = source + decoding.max_extra_length
    return min(source, longest_source or source), min(target, longest_target or target)


@dataclass(frozen=True)
class SearchPlan:
    """All that a search of texts depends on; see `Engine.translate`."""

    decoding: DecodingConfig
    n_best: int = 1
    sampling: SamplingConfig | None = None
    prefixes: Sequence[str] | None = None
    rules: tuple[Rule, ...] = ()
    rule_texts: Sequence[str] = ()
    alphas: tuple[float, ...] = ()
    slots: bool | None = None  # whether their rule applies; None: in a batch that needs it

    def without_inputs(self) -> Self:
        """Returns the plan that a compiled search depends on."""
        decoding = replace(self.decoding, batch_tokens=1)
        sampling = self.sampling and replace(self.sampling, seed=0)
        prefixes = None if self.prefixes is None else ()
        plan = replace(self, decoding=decoding, sampling=sampling, prefixes=prefixes)
        return replace(plan, rule_texts=())


class Engine(InOneProcess, ABC):
    """Computes what a `Translator` returns and a server answers.

    Attributes:
        name: its name in messages.
        advice: what to do for something that it cannot do.
        streams: number of calls that can run at the same time without slowing each other down;
            None for as many as the cores allow.
        has_slots: whether each slot of a source comes once in its translation.
        symbols: words that the vocabulary has, such as tags.
        longest_trained: tokens of the longest source in training, with EOS; None if unknown.
        gives_word_probs: whether `score` gives the probabilities of words.
        graph: the engine of the model in TensorFlow, which aligns; None without it.
        inputs: those of each signature that a server offers.
        places: whether `slot_passes` tells how likely each slot is at each place.
        aligns: whether `nearest` aligns pieces.
        scores: whether `score` can be called.
    """

    name: str
    advice: str
    streams: int | None = None
    has_slots = False
    symbols: frozenset[str] = frozenset()
    longest_trained: int | None = None
    gives_word_probs = True
    graph: Any = None
    inputs: Mapping[str, Mapping[str, Input]] = MappingProxyType({})
    places = False
    aligns = False
    scores = True

    def translate(
        self,
        texts: Sequence[str],
        decoding: DecodingConfig,
        n_best: int = 1,
        *,
        prefixes: Sequence[str] | None = None,
        sampling: SamplingConfig | None = None,
        rules: tuple[Rule, ...] = (),
        rule_texts: Sequence[str] | None = None,
        alphas: Sequence[float] = (),
        progress: Progress | None = None,
    ) -> list[list[Translation]]:
        """Returns the best translations of each text, best first, up to `n_best` of them.

        A blank text has a single blank one, and so has a length limit of one token, or a text
        of which `rules` exclude every translation. Any other translation has a token before
        EOS, which may be the prefix's.

        `n_best` is at most the beam size unless sampled. A translation may continue the last
        word of its prefix, "" for none; a prefix that reaches the length limit is cut there,
        with a warning. Samples depend only on the seed and their own text; the most probable is
        first. `rules` are the user's, which read `rule_texts`, by default the texts. `alphas`,
        exponents of the length penalty, replace that of `decoding` and `n_best`: the list of a
        text then holds the best translation under each. All come from a single search, without
        `lookahead`. Raises UserError for what the engine cannot do.
        """
        read = texts if rule_texts is None else rule_texts
        plan = SearchPlan(decoding, n_best, sampling, prefixes, rules, read, tuple(alphas))
        return self._translate(texts, plan, progress)

    def answer(
        self,
        texts: Sequence[str],
        decoding: DecodingConfig,
        n_best: int,
        timeout: float | None,
        is_cancelled: Callable[[], bool],
    ) -> list[list[Translation]]:
        """Translates beside other calls, in a single stream and without a log of long texts.

        Raises TimeoutError if it takes more than `timeout` seconds, and ClosedError once
        `is_cancelled()` is true; both are noticed between batches.
        """
        until = time.monotonic() + (math.inf if timeout is None else timeout)

        def check(done: int) -> None:
            if is_cancelled():
                raise ClosedError
            if done < len(texts) and time.monotonic() > until:
                raise TimeoutError(f"a search took more than {timeout:g} s")

        return self._translate(texts, SearchPlan(decoding, n_best), check, alone=False)

    @abstractmethod
    def _translate(
        self,
        texts: Sequence[str],
        plan: SearchPlan,
        progress: Progress | None,
        alone: bool = True,
    ) -> list[list[Translation]]: ...

    @abstractmethod
    def score(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        decoding: DecodingConfig,
        progress: Progress | None = None,
    ) -> list[Translation]:
        """Returns each target with its log-probability as translation of its source.

        It equals the one from `translate` for the same tokens. Targets are cut at the longest
        possible translation: `max_source_length` + `max_extra_length` tokens.
        """

    @abstractmethod
    def fingerprint(self) -> str:
        """Returns a hash of weights and tokenizer: with the same, translations are the same."""

    def score_kept(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        decoding: DecodingConfig,
        kept: Protection,
        progress: Progress | None = None,
    ) -> list[Translation]:
        """Scores targets and their words between blanks, around the spans that are kept."""
        read, results = kept.all_as_read(sources, targets, self.has_slots), []
        texts = [each.source for each in read], [each.target for each in read]
        scored = self.score(*texts, decoding, progress)
        for target, each, one in zip(targets, read, scored, strict=True):
            results.append(one.with_text(target))
            results[-1].word_probs = each.spread(one.word_probs, len(target.split()))
        return results

    def add_word_probs(
        self,
        texts: Sequence[str],
        ranked: Sequence[Sequence[Translation]],
        decoding: DecodingConfig,
        kept: Protection,
    ) -> None:
        """Scores the translations of each text for the probabilities of their words."""
        found = [each for some in ranked for each in some]
        origins = [text for text, some in zip(texts, ranked, strict=True) for _ in some]
        scored = self.score_kept(origins, found, decoding, kept)
        for each, same in zip(found, scored, strict=True):
            each.word_probs = same.word_probs
        other = (
            not one.tokens and abs(one.log_prob - same.log_prob) > 0.05
            for one, same in zip(found, scored, strict=True)
        )
        if count := sum(other):
            logger.warning(_OTHER_PIECES, count)

    @abstractmethod
    def count_tokens(self, text: str | bytes) -> int:
        """Returns the tokens of a source, EOS included, however long it is."""

    @abstractmethod
    def limits(self, decoding: DecodingConfig) -> tuple[int, int]:
        """Returns the most tokens of a source and of a target; see `token_limits`."""

    def close(self) -> None:
        """Frees the model of an export."""

    def refuse(self, what: str) -> NoReturn:
        """Raises UserError: the engine cannot do `what`."""
        raise UserError(f"{self.name} cannot {what}: {self.advice}.")

    def refuse_all_but_beam_search(self, plan: SearchPlan) -> None:
        """Raises UserError if the plan has what only a search in TensorFlow can do."""
        if plan.sampling or plan.rules or plan.alphas:
            other = "rules of your own" if plan.rules else "several alphas"
            self.refuse("sample" if plan.sampling else f"search with {other}")
