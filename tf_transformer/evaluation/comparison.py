"""Comparison of translations of one text, with significance tests; means over seeds."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

from tf_transformer.evaluation.bleu import SAMPLES, interval_in_percent

TRIALS = 10_000  # trials of approximate randomisation
SIGNIFICANT = 0.05  # a smaller p-value counts as a real difference


@dataclass(frozen=True)
class BleuAndLength:
    """Corpus BLEU with its brevity penalty and length ratio.

    Attributes:
        value: BLEU.
        brevity_penalty: factor of BLEU; 1 unless the output is shorter than the reference.
        length_ratio: tokens of the hypotheses / tokens of the references.
    """

    value: float
    brevity_penalty: float
    length_ratio: float


class Comparison:
    """Compares translations of one text by BLEU.

    Args:
        references: one per sentence; they are tokenised only once.
        tokenize: sacreBLEU's tokeniser.
    """

    def __init__(self, references: Sequence[str], tokenize: str = "13a") -> None:
        self._metric = BLEU(references=[list(references)], tokenize=tokenize, force=True)

    def score(self, hypotheses: Sequence[str]) -> BleuAndLength:
        """Computes BLEU of detokenised translations, one per sentence."""
        result = self._metric.corpus_score(list(hypotheses), None)
        return BleuAndLength(result.score, result.bp, result.sys_len / max(result.ref_len, 1))

    def p_value(self, baseline: Sequence[str], hypotheses: Sequence[str]) -> float:
        """Returns the p-value of the difference in BLEU; see `paired_bootstrap`."""
        return paired_bootstrap(self._metric, baseline, hypotheses)

    @property
    def signature(self) -> str:
        """SacreBLEU's signature of the scores."""
        return str(self._metric.get_signature())


@dataclass(frozen=True)
class DevText:
    """A text to test served models on, and the metric that scores their answers.

    Attributes:
        sources: the sentences.
        metric: a sacreBLEU metric, in percent, that holds the correct answers.
        output: name of the model output to score, such as "translation".
    """

    sources: Sequence[str]
    metric: Metric
    output: str


def paired_bootstrap(metric: Metric, baseline: Sequence[str], outputs: Sequence[str]) -> float:
    """Returns the probability that a difference this large arises by chance.

    Uses sacreBLEU's paired bootstrap resampling (Koehn 2004) with `SAMPLES` samples.

    Args:
        metric: a sacreBLEU metric that holds its references.
        baseline: the output of one system, one per sentence.
        outputs: the output of another system.
    """
    first, tested = _paired(metric, [baseline, outputs], "bs", SAMPLES)
    if tested.score == first.score:
        return 1.0  # sacreBLEU gives identical outputs a p-value near 0
    return tested.p_value or 0.0


@dataclass(frozen=True)
class Tested:
    """Interval of a system's score, and p-values of its difference from the first system.

    Attributes:
        low, high: the 95 % confidence interval, by bootstrap resampling of sentences.
        bootstrap: p-value by paired bootstrap resampling (Koehn 2004); None for the first
            system.
        randomisation: p-value by approximate randomisation (Riezler and Maxwell 2005); None
            for the first system.
    """

    low: float
    high: float
    bootstrap: float | None = None
    randomisation: float | None = None


def paired_tests(metric: Metric, systems: Sequence[Sequence[str]]) -> list[Tested]:
    """Tests the difference of each system from the first, by sacreBLEU and with its seed.

    Args:
        metric: a sacreBLEU metric that holds its references.
        systems: the translations of each system, one per sentence.
    """
    sampled = _paired(metric, systems, "bs", SAMPLES)
    shuffled = _paired(metric, systems, "ar", TRIALS)
    tested: list[Tested] = []
    for by_samples, by_trials in zip(sampled, shuffled, strict=True):
        values = by_samples.p_value, by_trials.p_value
        if tested and by_samples.score == sampled[0].score:
            values = 1.0, 1.0  # see `paired_bootstrap`
        mean, half_width = by_samples.mean or 0.0, by_samples.ci or 0.0
        low, high = mean - half_width, mean + half_width
        if isinstance(metric, (BLEU, CHRF)):  # others may have any range
            low, high = interval_in_percent(mean, half_width)
        tested.append(Tested(low, high, *values))
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
        return f"{self.mean:.2f}" + (
            "" if self.deviation is None else f" ± {self.deviation:.2f}"
        )
