"""Scores of several translations of one text, and the significance of their difference."""

from collections.abc import Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU
from sacrebleu.metrics.base import Metric
from sacrebleu.significance import PairedTest, Result

SAMPLES = 1_000  # of the bootstrap
TRIALS = 10_000  # of the randomisation
SIGNIFICANT = 0.05  # a p-value below it is taken for a difference


@dataclass(frozen=True)
class BleuAndLength:
    """Corpus BLEU with the penalty for output that is too short, and the reason for it.

    Attributes:
        value: BLEU.
        brevity_penalty: the factor in it, 1 unless the output is shorter than the reference.
        length_ratio: tokens of the hypotheses / tokens of the references.
    """

    value: float
    brevity_penalty: float
    length_ratio: float


class Comparison:
    """Compares translations of one text by BLEU.

    Args:
        references: one for each sentence, tokenised only once.
    """

    def __init__(self, references: Sequence[str]) -> None:
        self._metric = BLEU(references=[list(references)], force=True)

    def score(self, hypotheses: Sequence[str]) -> BleuAndLength:
        """Computes BLEU of one translation a sentence, detokenised."""
        result = self._metric.corpus_score(list(hypotheses), None)
        return BleuAndLength(result.score, result.bp, result.sys_len / max(result.ref_len, 1))

    def p_value(self, baseline: Sequence[str], hypotheses: Sequence[str]) -> float:
        """Computes the probability of so large a difference in BLEU by chance alone."""
        return paired_bootstrap(self._metric, baseline, hypotheses)

    @property
    def signature(self) -> str:
        """Signature, by sacreBLEU, of the scores."""
        return str(self._metric.get_signature())


@dataclass(frozen=True)
class DevText:
    """A text, and the metric of what a served model answers to it.

    Attributes:
        sources: its sentences.
        metric: of sacreBLEU's kind, in percent, with the correct answers.
        output: the model's output that it scores, such as "translation".
    """

    sources: Sequence[str]
    metric: Metric
    output: str


def paired_bootstrap(metric: Metric, baseline: Sequence[str], outputs: Sequence[str]) -> float:
    """Computes the probability of so large a difference by chance alone.

    By paired bootstrap resampling of `SAMPLES` samples (Koehn 2004), as sacreBLEU has it.

    Args:
        metric: of sacreBLEU's kind, with its references.
        baseline: the answers of a system, one a sentence.
        outputs: those of another.
    """
    first, tested = _paired(metric, [baseline, outputs], "bs", SAMPLES)
    if tested.score == first.score:
        return 1.0  # sacreBLEU counts only larger differences than that of none
    return tested.p_value or 0.0


@dataclass(frozen=True)
class Tested:
    """A score with its interval, and the p-values of its difference from the first system's.

    Attributes:
        value: the score of the test set.
        low, high: its 95 % confidence interval, by bootstrap resampling of sentences.
        bootstrap: p-value by paired bootstrap resampling (Koehn 2004); None for the first.
        randomisation: p-value by approximate randomisation (Riezler and Maxwell 2005).
    """

    value: float
    low: float
    high: float
    bootstrap: float | None = None
    randomisation: float | None = None


def paired_tests(metric: Metric, systems: Sequence[Sequence[str]]) -> list[Tested]:
    """Tests the difference of each system from the first, by sacreBLEU and with its seed.

    Args:
        metric: of sacreBLEU's kind, with its references.
        systems: the translations of each, one a sentence.
    """
    sampled = _paired(metric, systems, "bs", SAMPLES)
    shuffled = _paired(metric, systems, "ar", TRIALS)
    tested: list[Tested] = []
    for by_samples, by_trials in zip(sampled, shuffled, strict=True):
        values = by_samples.p_value, by_trials.p_value
        if tested and by_samples.score == sampled[0].score:
            values = 1.0, 1.0  # see `paired_bootstrap`
        middle, half = by_samples.mean or 0.0, by_samples.ci or 0.0
        tested.append(Tested(by_samples.score, middle - half, middle + half, *values))
    return tested


def _paired(
    metric: Metric, systems: Sequence[Sequence[str]], test: str, samples: int
) -> list[Result]:
    """Returns sacreBLEU's result of a test for each system, the first without a p-value."""
    named: list[tuple[str, Sequence[str]]]
    named = [(str(number), list(system)) for number, system in enumerate(systems)]
    _, results = PairedTest(named, {"": metric}, None, test, samples)()
    del results["System"]
    [found] = results.values()
    return found  # type: ignore[return-value]
