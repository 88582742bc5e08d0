"""BLEU, chrF and exact matches of finished translations, with signatures (Post 2018)."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF

SAMPLES = 1_000  # bootstrap samples, which sacreBLEU draws with its seed, SACREBLEU_SEED


@dataclass(frozen=True)
class Score:
    """A corpus score with its signature; only scores with equal signatures are comparable."""

    name: str
    value: float
    signature: str

    def __str__(self) -> str:
        return f"{self.name} {self.value:.2f}  {self.signature}"


def bleu(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
    smooth: str = "exp",
) -> Score:
    """Computes corpus BLEU (Papineni et al. 2002).

    Args:
        hypotheses: one detokenised translation per sentence.
        references: one or more sets of references, each with one per sentence.
        lowercase: whether to ignore case.
        tokenize: sacreBLEU's tokeniser; "none" for text that is already tokenised.
        smooth: sacreBLEU's smoothing of n-gram orders without matches; "none" for none.

    Raises:
        ValueError: if the numbers of sentences differ.
    """
    _check_lengths(hypotheses, references)
    # Without `force` sacreBLEU warns about text that looks tokenised, as some captions do.
    metric = BLEU(lowercase=lowercase, tokenize=tokenize, smooth_method=smooth, force=True)
    value = metric.corpus_score(list(hypotheses), list(map(list, references))).score
    return Score("BLEU", value, str(metric.get_signature()))


@dataclass(frozen=True)
class Interval:
    """Corpus BLEU with a confidence interval.

    Attributes:
        value: corpus BLEU.
        low, high: the 95 % confidence interval.
        length_ratio: tokens of the hypotheses / tokens of the references.
        signature: sacreBLEU's signature, including the resampling.
    """

    value: float
    low: float
    high: float
    length_ratio: float
    signature: str


def bleu_interval(
    hypotheses: Sequence[str], references: Sequence[str], tokenize: str = "13a"
) -> Interval:
    """Computes BLEU with an interval by bootstrap resampling of sentences (Koehn 2004).

    Args:
        hypotheses: one detokenised translation per sentence.
        references: one per sentence.
        tokenize: sacreBLEU's tokeniser.

    Raises:
        ValueError: if the numbers of sentences differ, or all references are blank.
    """
    _check_lengths(hypotheses, [references])
    metric = BLEU(tokenize=tokenize, force=True)
    result = metric.corpus_score(list(hypotheses), [list(references)], n_bootstrap=SAMPLES)
    if not result.ref_len:
        raise ValueError("`references` must have a token. Received: only blank ones.")
    # sacreBLEU has no public names for mean and half width.
    low, high = interval_in_percent(result._mean, result._ci)
    return Interval(
        value=result.score,
        low=low,
        high=high,
        length_ratio=result.sys_len / result.ref_len,
        signature=str(metric.get_signature()),
    )


def interval_in_percent(mean: float, half_width: float) -> tuple[float, float]:
    """Returns both ends of an interval, clipped to the range of BLEU and chrF, 0 to 100."""
    # sacreBLEU's best score is a rounding error above 100.
    low, high = (min(100.0, max(0.0, mean + change)) for change in (-half_width, half_width))
    return low, high


def chrf(hypotheses: Sequence[str], *references: Sequence[str]) -> Score:
    """Computes corpus chrF2 of detokenised text (Popović 2015)."""
    _check_lengths(hypotheses, references)
    metric = CHRF()
    value = metric.corpus_score(list(hypotheses), list(map(list, references))).score
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
        """The share of exact matches as a line such as "exact 10.0% (2 of 20)"."""
        equal = round(self.exact * self.sentences)
        return f"exact {self.exact:.1%} ({equal:,} of {self.sentences:,})"

    def __repr__(self) -> str:
        return f"{self.bleu}\n{self.chrf}\n{self.exact_line}"


def score_translations(
    hypotheses: Sequence[str],
    *references: Sequence[str],
    lowercase: bool = False,
    tokenize: str = "13a",
) -> Scores:
    """Scores translations against one or more sets of references; see `bleu`."""
    by_bleu = bleu(hypotheses, *references, lowercase=lowercase, tokenize=tokenize)
    pairs = zip(hypotheses, zip(*references, strict=True), strict=True)
    exact = sum(hypothesis in correct for hypothesis, correct in pairs) / len(hypotheses)
    return Scores(by_bleu, chrf(hypotheses, *references), exact, len(hypotheses))


def _check_lengths(hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> None:
    if {len(hypotheses)} != {len(lines) for lines in references}:
        counts = ", ".join(str(len(lines)) for lines in references) or "no"
        raise ValueError(
            "`hypotheses` and each set of `references` must have the same number of sentences. "
            f"Received: {len(hypotheses)} hypotheses, {counts} references."
        )
