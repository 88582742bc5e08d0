"""Scores of finished translations, significance tests, and reports of every variant of BLEU."""

import itertools
import logging
import re
import statistics
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Self

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric
from sacrebleu.metrics.bleu import BLEUScore
from sacrebleu.significance import PairedTest, Result

from tf_transformer.base.errors import UserError, missing_extra
from tf_transformer.base.output import Table

logger = logging.getLogger(__name__)

SAMPLES = 1_000  # bootstrap samples, which sacreBLEU draws with its seed, SACREBLEU_SEED
TRIALS = 10_000  # trials of approximate randomisation
SIGNIFICANT = 0.05  # a smaller p-value counts as a real difference


@dataclass(frozen=True)
class Score:
    """A corpus score with its signature; only scores with equal signatures are comparable."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f}  {self.signature}"


def without_blanks(references: Sequence[Sequence[Any]], say: bool = False) -> list[list[Any]]:
    """Returns references with None, for sacreBLEU, in place of blank lines; may `say` how many.

    A blank line would count as a reference of length 0, and leave no brevity penalty. Where all
    references are blank they stay.
    """
    if len(references) < 2:
        return [*map(list, references)]
    some = [any(line and line.strip() for line in row) for row in zip(*references, strict=True)]
    given = [
        [line if not other or (line and line.strip()) else None
         for line, other in zip(lines, some, strict=True)]
        for lines in references
    ]  # fmt: skip
    if say and (blank := sum(lines.count(None) for lines in given)):
        logger.warning("blank lines of references, which count as no reference: %d", blank)
    return given


def bleu(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
    smooth: str = "exp",
) -> Score:
    """Computes corpus BLEU (Papineni et al. 2002) of detokenised translations.

    There are one or more sets of references, each with one per sentence; among several, a blank
    line counts as none. `tokenize` is sacreBLEU's tokeniser, "none" for tokenised text, and
    `smooth` its smoothing of n-gram orders without matches.
    """
    metric = _bleu(tokenize, lowercase=lowercase, smooth_method=smooth)
    value = metric.corpus_score(list(hypotheses), without_blanks(references)).score
    return Score("BLEU", value, str(metric.get_signature()))


# sacreBLEU's tokenisers for scripts without blanks between words (Korean has most), by the
# first word of their letters' names in Unicode.
_OF_SCRIPTS = {
    "CJK": "zh",
    "HIRAGANA": "ja-mecab",
    "KATAKANA": "ja-mecab",
    "HANGUL": "ko-mecab",
}
_OF_SCRIPTS |= dict.fromkeys(("THAI", "LAO", "KHMER", "MYANMAR", "TIBETAN"), "char")


def tokenizer_for(tokenize: str, references: Sequence[str]) -> str:
    """Returns sacreBLEU's tokeniser for text: another than 13a, it says, if it has no blanks.

    For 13a what stands between blanks is a word, so that hardly any n-gram would match.
    """
    scripts = {
        char: _OF_SCRIPTS.get(unicodedata.name(char, "").partition(" ")[0])
        for char in {*"".join(references)}
        if unicodedata.category(char)[0] in "LM"
    }
    letters = Counter(scripts[char] for line in references for char in line if char in scripts)
    others = letters.pop(None, 0)
    words = itertools.chain.from_iterable(itertools.pairwise(r.split()) for r in references)
    blanks = sum(bool(scripts.get(a[-1]) and scripts.get(b[0])) for a, b in words)
    # Tokenised text has more than one blank for six of these letters.
    if tokenize != "13a" or letters.total() <= others or 6 * blanks > letters.total():
        return tokenize
    if letters["ja-mecab"] > letters["zh"] / 9:  # Japanese has Chinese characters too
        del letters["zh"]
    found = max(filter(None, letters), key=letters.__getitem__)
    try:
        _bleu(found)
    except UserError:  # not installed
        found = "char"
    logger.warning("BLEU splits text by %s, not 13a: it has no blanks between words", found)
    return found


def _bleu(tokenize: str, **options: Any) -> BLEU:
    """Returns sacreBLEU's metric; UserError if its tokeniser is not installed."""
    try:
        # Without `force` sacreBLEU warns about text that looks tokenised, as some captions do.
        return BLEU(tokenize=tokenize, force=True, **options)
    except RuntimeError as error:
        raise UserError(" ".join(str(error).split())) from None


def bleu_signature(tokenize: str) -> str:
    """Returns the signature of BLEU with one reference and a tokeniser of sacreBLEU."""
    return bleu(["a"], ["a"], tokenize=tokenize).signature


@dataclass(frozen=True)
class Interval:
    """Corpus BLEU with its 95 % confidence interval."""

    value: float
    low: float
    high: float
    length_ratio: float  # tokens of the hypotheses / tokens of the references
    signature: str  # sacreBLEU's, including the resampling


def bleu_interval(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> Interval:
    """Computes BLEU with an interval by bootstrap resampling of sentences (Koehn 2004).

    The arguments are those of `bleu`; the references must not all be blank.
    """
    metric = _bleu(tokenize)
    result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=SAMPLES)
    # sacreBLEU has no public names for mean and half width.
    low, high = interval_in_percent(result._mean, result._ci)
    return Interval(result.score, low, high, length_ratio(result), str(metric.get_signature()))


def length_ratio(result: BLEUScore) -> float:
    """Returns the tokens of the hypotheses / those of the references, by sacreBLEU's count."""
    return result.sys_len / max(result.ref_len, 1)


def interval_in_percent(mean: float, half_width: float) -> tuple[float, float]:
    """Returns both ends of an interval, clipped to the range of BLEU and chrF, 0 to 100."""
    # sacreBLEU's best score is a rounding error above 100.
    low, high = (min(100.0, max(0.0, mean + change)) for change in (-half_width, half_width))
    return low, high


def chrf(hypotheses: Sequence[str], *references: Sequence[str]) -> Score:
    """Computes corpus chrF2 of detokenised text (Popović 2015)."""
    metric = CHRF()
    value = metric.corpus_score(list(hypotheses), without_blanks(references)).score
    return Score("chrF2", value, str(metric.get_signature()))


@dataclass(frozen=True, repr=False)
class Scores:
    """BLEU and chrF of translations, and the share that exactly match a reference."""

    bleu: Score
    chrf: Score
    exact: float
    sentences: int

    @property
    def exact_line(self) -> str:
        """A line such as "exact 10.0% (2 of 20)"."""
        equal = round(self.exact * self.sentences)
        line = f"exact {self.exact:.1%} ({equal:,} of {self.sentences:,})"
        if self.bleu.value or not self.exact:
            return line
        return f"{line}; BLEU needs a translation of four tokens or more"

    def __repr__(self) -> str:
        return f"{self.bleu}\n{self.chrf}\n{self.exact_line}"


def score_translations(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Scores:
    """Scores translations against one or more sets of references; see `bleu`."""
    references = tuple(without_blanks(references, say=True))
    by_bleu = bleu(hypotheses, *references, lowercase=lowercase, tokenize=tokenize)
    pairs = zip(hypotheses, zip(*references, strict=True), strict=True)
    exact = sum(hypothesis in correct for hypothesis, correct in pairs) / len(hypotheses)
    return Scores(by_bleu, chrf(hypotheses, *references), exact, len(hypotheses))


# --- Metrics that compare systems -------------------------------------------------------

SACREBLEU: dict[str, Callable[..., Metric]] = {"bleu": _bleu, "chrf": CHRF}


def make_metric(
    name: str, references: Sequence[Sequence[str]], tokenize: str = "13a"
) -> Metric:
    """Returns one of `SACREBLEU`; only BLEU uses `tokenize`, sacreBLEU's tokeniser."""
    options = {"tokenize": tokenize} if name == "bleu" else {}
    return SACREBLEU[name](references=without_blanks(references), **options)


class BleuAndLength(NamedTuple):
    """Corpus BLEU; its brevity penalty, a factor; tokens per token of the references."""

    value: float
    brevity_penalty: float
    length_ratio: float


def bleu_and_length(metric: Metric, hypotheses: Sequence[str]) -> BleuAndLength:
    """Scores detokenised translations by a BLEU of `make_metric`."""
    result = metric.corpus_score(list(hypotheses), None)
    return BleuAndLength(result.score, result.bp, length_ratio(result))


@dataclass(frozen=True)
class DevText:
    """A text to test served models on, and the metric that scores their answers."""

    sources: Sequence[str]
    metric: Metric  # in percent, with the correct answers


def paired_bootstrap(metric: Metric, baseline: Sequence[str], outputs: Sequence[str]) -> float:
    """Returns the probability that chance alone makes the better of two systems so much better.

    This is one-sided: whoever asks which of the two is better doubles it. It comes from
    sacreBLEU's paired bootstrap resampling (Koehn 2004) with `SAMPLES` samples of the
    sentences, and a metric that holds its references.
    """
    first, tested = _paired(metric, [baseline, outputs], "bs", SAMPLES)
    if tested.score == first.score:
        return 1.0  # sacreBLEU gives identical outputs a p-value near 0
    return tested.p_value or 0.0


@dataclass(frozen=True)
class Significance:
    """Interval of a system's score, and p-values of its difference from the first system.

    The 95 % confidence interval is by bootstrap resampling of sentences. The p-values are None
    for the first system, and two-sided for others.
    """

    low: float
    high: float
    bootstrap: float | None = None  # paired bootstrap resampling (Koehn 2004)
    randomisation: float | None = None  # approximate randomisation (Riezler and Maxwell 2005)


def paired_tests(metric: Metric, systems: Sequence[Sequence[str]]) -> list[Significance]:
    """Tests the difference of each system from the first, by sacreBLEU and with its seed.

    The metric holds its references; a system is its translations, one per sentence.
    """
    sampled = _paired(metric, systems, "bs", SAMPLES)
    shuffled = _paired(metric, systems, "ar", TRIALS)
    tested: list[Significance] = []
    for by_samples, by_trials in zip(sampled, shuffled, strict=True):
        values: tuple[float | None, float | None] = (None, None)
        if tested:  # sacreBLEU's bootstrap is one-sided
            values = min(1.0, 2 * (by_samples.p_value or 0.0)), by_trials.p_value
        if tested and by_samples.score == sampled[0].score:
            values = 1.0, 1.0  # see `paired_bootstrap`
        mean, half_width = by_samples.mean or 0.0, by_samples.ci or 0.0
        tested.append(Significance(*interval_in_percent(mean, half_width), *values))
    return tested


def _paired(
    metric: Metric, systems: Sequence[Sequence[str]], test: str, samples: int
) -> list[Result]:
    """Returns sacreBLEU's result of a test for each system, the first without a p-value."""
    named: list[tuple[str, Sequence[str]]]
    named = [(str(index), list(system)) for index, system in enumerate(systems)]
    _, results = PairedTest(named, {"": metric}, None, test, samples)()
    del results["System"]
    [by_system] = results.values()
    return by_system  # type: ignore[return-value]


@dataclass(frozen=True)
class Spread:
    """Mean of a figure over seeds, and its standard deviation (None for a single seed)."""

    mean: float
    deviation: float | None = None

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """Computes the spread of `values`, at least one."""
        several = len(values) > 1
        return cls(statistics.mean(values), statistics.stdev(values) if several else None)

    def __str__(self) -> str:
        deviation = "" if self.deviation is None else f" ± {self.deviation:.2f}"
        return f"{self.mean:.2f}{deviation}"


# --- Report -----------------------------------------------------------------------------

CAUTION = (
    "Compare only scores of the same kind and signature: kinds differ by several points on the "
    "same text. Scores from 2014 to 2017, including the paper's, are on Moses' tokens, with "
    "compounds split for English-German. In publications, report the first."
)
# Since 2018 tokenizer.perl splits the final full stop of a line from any word; sacremoses still
# keeps it on possible ordinal numbers and abbreviations.
_LAST_STOP = re.compile(r"(?<=[^\s.])\.$")
# Languages with rules of their own in tokenizer.perl, which sacremoses 0.2.0 lacks: colons and
# middle dots inside words, apostrophes.
_OWN_RULES = {"ca", "fi", "ga", "sv"}
_HYPHEN = re.compile(r"(\S)-(\S)")


def report(
    hypotheses: Sequence[str], *references: Sequence[str], language: str, tokenize: str = "13a"
) -> dict[str, Score]:
    """Computes all scores of cased translations, by kind; see `bleu`.

    `tokenize` is for the first score, and the language, such as "de", for Moses' tokenizer; see
    `moses_tokenize` for errors.
    """
    moses = moses_bleu(hypotheses, *references, language=language)  # first: it may raise
    kinds = {
        tokenize: f"BLEU, {tokenize} tokens",  # the first
        "13a": "BLEU, sacreBLEU's 13a tokens",
        "intl": "BLEU, intl tokens",
        "none": "BLEU, tokens as in the text",
    }
    scores = [
        (kind, bleu(hypotheses, *references, tokenize=tokens)) for tokens, kind in kinds.items()
    ]
    lowercase = bleu(hypotheses, *references, lowercase=True)
    scores.insert(1, ("BLEU, 13a, lower-cased", lowercase))
    return {**dict(scores), "chrF2": chrf(hypotheses, *references), **moses}


def moses_bleu(
    hypotheses: Sequence[str], *references: Sequence[str], language: str
) -> dict[str, Score]:
    """Computes BLEU like multi-bleu.perl on Moses' tokens, plain and with compounds split.

    The arguments and errors are those of `report`.
    """
    texts = [moses_tokenize(lines, language) for lines in (hypotheses, *references)]
    split = [[split_compounds(line) for line in lines] for lines in texts]
    return {
        "BLEU of 2017: Moses' tokens": _multi_bleu(texts, f"moses-{language}"),
        "BLEU of 2017: compounds split": _multi_bleu(split, f"moses-{language}-atat"),
    }


def moses_tokenize(lines: Iterable[str], language: str) -> list[str]:
    """Tokenises lines like Moses' tokenizer.perl -l LANGUAGE, with tokens joined by spaces.

    Uses sacremoses, except for the final full stop of a line. Unlike the script, sacremoses
    separates Chinese, Japanese and Korean characters from others. Raises UserError if it is not
    installed, or does not know the language or the script's rules for it.
    """
    try:
        from sacremoses import MosesTokenizer
        from sacremoses.corpus import NonbreakingPrefixes
    except ImportError:
        raise missing_extra("BLEU on Moses' tokens", "sacremoses", "moses") from None
    languages = {code for code in NonbreakingPrefixes().available_langs if len(code) < 4}
    known = sorted(languages - _OWN_RULES)
    if language not in known:
        raise UserError(
            f"Tokens as by Moses need one of the languages {', '.join(known)}. "
            f"Received: {language}{', whose rules sacremoses lacks' * (language in languages)}."
        )
    tokenizer = MosesTokenizer(language)
    return [_LAST_STOP.sub(" .", tokenizer.tokenize(line, return_str=True)) for line in lines]


def split_compounds(line: str) -> str:
    """Splits the compounds of a tokenised line: rich-text becomes rich ##AT##-##AT## text.

    This follows tensor2tensor's get_ende_bleu.sh (after Luong et al. 2015), which produced the
    paper's English-German scores. Of two hyphens around a letter only the first is split.
    """
    return _HYPHEN.sub(r"\1 ##AT##-##AT## \2", line)


def _multi_bleu(texts: Sequence[Sequence[str]], tokens: str) -> Score:
    """Computes unsmoothed BLEU of tokenised text; names the tokens in the signature."""
    score = bleu(*texts, tokenize="none", smooth="none")
    return replace(score, signature=score.signature.replace("tok:none", f"tok:{tokens}"))


def format_report(scores: Mapping[str, Score]) -> str:
    """Formats a line for each score, to four decimals as in some papers, and the caution."""
    rows = [(kind, f"{it.value:.4f}", it.signature) for kind, it in scores.items()]
    return f"{Table((), rows, 'lrl').text('plain')}\ncaution: {CAUTION}\n"
