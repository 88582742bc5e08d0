"""Scores, significance and sentence-level wins of systems compared with the first."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric

from tf_transformer.evaluation.comparison import Tested, paired_tests
from tf_transformer.evaluation.spread import Spread
from tf_transformer.studies.comparison.systems import System

_EQUAL = 0.005  # points of chrF within which two sentences count as equally good


@dataclass(frozen=True)
class Scored:
    """Scores of every system by one metric.

    Attributes:
        signature: of the metric.
        spreads: mean and deviation over the seeds of each system.
        tested: the test of each system's typical seed.
    """

    signature: str
    spreads: list[Spread]
    tested: list[Tested]


@dataclass(frozen=True)
class Sentence:
    """A sentence that one of two systems translates better.

    Attributes:
        number: its line in the test set, counted from 1.
        texts: the source, if known, the reference and the two translations, by name.
        gain: sentence-level chrF of the second system minus that of the first, in points.
    """

    number: int
    texts: dict[str, str]
    gain: float


@dataclass(frozen=True)
class Wins:
    """A system compared with the first, sentence by sentence, by chrF.

    Attributes:
        name: of the system.
        gains: chrF of each sentence minus that of the first system, in points.
        largest: the sentences of the largest gains, then of the largest losses.
    """

    name: str
    gains: list[float]
    largest: list[Sentence]

    @property
    def counts(self) -> tuple[int, int, int]:
        """Returns how many sentences are better, worse and equal."""
        better = sum(gain > _EQUAL for gain in self.gains)
        worse = sum(gain < -_EQUAL for gain in self.gains)
        return better, worse, len(self.gains) - better - worse


@dataclass(frozen=True)
class Comparison:
    """Systems on one test set; the first is the baseline.

    Attributes:
        systems: as they were compared.
        scores: by name of the metric.
        length_ratios: tokens of each typical seed / tokens of the reference, by BLEU's tokens.
        wins: of each system except the first.
        typical: for each system the index of the seed that tests and sentences use.
    """

    systems: Sequence[System]
    scores: Mapping[str, Scored]
    length_ratios: list[float]
    wins: list[Wins]
    typical: list[int]


def compare(
    systems: Sequence[System],
    metrics: Mapping[str, Metric],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    most: int = 5,
) -> Comparison:
    """Compares systems.

    For a system with several seeds, tests and sentences use the seed whose score by the first
    metric is nearest to the mean.

    Args:
        systems: at least two, with a translation of each sentence.
        metrics: by name, at least one.
        sources: of the test set; empty if unknown.
        references: one or more sets of them.
        most: sentences to show of each kind, gains and losses.
    """
    values = {
        name: [[metric.corpus_score(list(out), None).score for out in each.outputs]
               for each in systems]
        for name, metric in metrics.items()
    }  # fmt: skip
    typical = [_nearest_to_mean(seeds) for seeds in next(iter(values.values()))]
    outputs = [each.outputs[seed] for each, seed in zip(systems, typical, strict=True)]
    scores = {
        name: Scored(
            str(metric.get_signature()),
            [Spread.of(seeds) for seeds in values[name]],
            paired_tests(metric, outputs),
        )
        for name, metric in metrics.items()
    }
    texts = {"source": sources} if sources else {}
    texts |= {"reference": references[0], systems[0].name: outputs[0]}
    chrf = [_sentence_chrf(each, references) for each in outputs]
    others = list(zip(systems, outputs, chrf, strict=True))[1:]
    wins = [
        _wins(system.name, chrf[0], own, texts | {system.name: output}, most)
        for system, output, own in others
    ]
    ratios = [_length_ratio(each, references) for each in outputs]
    return Comparison(systems, scores, ratios, wins, typical)


def _nearest_to_mean(values: Sequence[float]) -> int:
    mean = Spread.of(values).mean
    return min(range(len(values)), key=lambda index: abs(values[index] - mean))


def _sentence_chrf(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    metric = CHRF()
    pairs = zip(outputs, zip(*references, strict=True), strict=True)
    return [metric.sentence_score(output, list(each)).score for output, each in pairs]


def _wins(
    name: str,
    baseline: Sequence[float],
    own: Sequence[float],
    texts: Mapping[str, Sequence[str]],
    most: int,
) -> Wins:
    gains = [after - before for before, after in zip(baseline, own, strict=True)]
    order = sorted(range(len(gains)), key=lambda line: gains[line], reverse=True)
    chosen = [line for line in order[:most] if gains[line] > _EQUAL]
    last = order[max(0, len(order) - most) :]
    chosen += [line for line in last if gains[line] < -_EQUAL]
    largest = [
        Sentence(line + 1, {kind: text[line] for kind, text in texts.items()}, gains[line])
        for line in chosen
    ]
    return Wins(name, gains, largest)


def _length_ratio(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> float:
    result = BLEU(force=True).corpus_score(list(outputs), [list(each) for each in references])
    return result.sys_len / max(result.ref_len, 1)
