"""Systems to compare, and their scores, significance and sentence-level wins over the first."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sacrebleu.metrics import BLEU, CHRF
from sacrebleu.metrics.base import Metric

from tf_transformer.evaluation.comparison import Spread, Tested, paired_tests
from tf_transformer.run import Run
from tf_transformer.run.run import NOT_EVALUATED, what_is_unfinished
from tf_transformer.studies.cost import parameter_count
from tf_transformer.tasks.registry import encoder_outputs

logger = logging.getLogger(__name__)

_EQUAL = 0.005  # points of chrF within which two sentences count as equally good


@dataclass(frozen=True)
class System:
    """A system's translations of the test set.

    Attributes:
        name: as shown in reports.
        outputs: the translations of each of its seeds.
        settings: its configuration by "section.field"; empty if unknown.
        cost: figures by name, each as text; empty if unknown.
    """

    name: str
    outputs: Sequence[Sequence[str]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[str, str] = field(default_factory=dict)


def members(path: Path) -> list[Path]:
    """Lists the finished runs in a folder written by `train --seeds`, in order of seed.

    Returns an empty list for any other folder.
    """
    if (path / "config.json").exists():
        return []
    finished = []
    for folder in (file.parent for file in path.glob("seed-*/config.json")):
        run = Run.open(folder)
        reason = what_is_unfinished(run, run.config.training.steps)
        if reason in ("", NOT_EVALUATED):  # the latter after `tf-transformer average`
            finished.append(folder)
        else:
            logger.warning("%s is skipped: %s; resume its `train --seeds`", folder, reason)
    return sorted(finished, key=lambda folder: (len(folder.name), folder.name))


def shared_settings(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the settings of runs that differ only in their seed."""
    seeds = [run.config.training.seed for run in runs]
    return runs[0].config.flat() | {"training.seed": seeds if len(seeds) > 1 else seeds[0]}


def cost_of(runs: Sequence[Run]) -> dict[str, str]:
    """Returns the training cost of runs from their records, all seeds together."""
    histories = [run.history() for run in runs]
    records = [record for history in histories for record in history]
    model = runs[0].config.model
    figures = {"parameters": f"{parameter_count(model, encoder_outputs(runs[0])):,}"}
    if not all(histories):
        return figures
    seconds = sum(record["train_seconds"] for record in records)
    tokens = sum(record["train_seconds"] * record["tokens_per_second"] for record in records)
    return figures | {
        "updates": f"{sum(history[-1]['step'] for history in histories):,}",
        "target tokens": f"{tokens:,.0f}",
        "training hours": f"{seconds / 3600:.2f}",
    }


@dataclass(frozen=True)
class Scored:
    """Scores of every system by one metric.

    Attributes:
        signature: the metric's signature.
        spreads: mean and standard deviation over the seeds of each system.
        tested: significance test of each system's typical seed.
    """

    signature: str
    spreads: list[Spread]
    tested: list[Tested]


@dataclass(frozen=True)
class Sentence:
    """A sentence that one of two systems translates better.

    Attributes:
        number: line in the test set, counted from 1.
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
        name: the system's name.
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
        systems: the systems, in the order of comparison.
        scores: scores by name of the metric.
        length_ratios: BLEU's tokens in the output of each typical seed / in the reference.
        tokenize: sacreBLEU's tokeniser that counted them.
        wins: comparison of each system but the first.
    """

    systems: Sequence[System]
    scores: Mapping[str, Scored]
    length_ratios: list[float]
    tokenize: str
    wins: list[Wins]


def compare(
    systems: Sequence[System],
    metrics: Mapping[str, Metric],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    most: int = 5,
    tokenize: str = "13a",
) -> Comparison:
    """Compares systems.

    For a system with several seeds, tests and sentences use the seed whose score by the first
    metric is nearest to the mean.

    Args:
        systems: at least two, with a translation of each sentence.
        metrics: at least one, by name.
        sources: sources of the test set; empty if unknown.
        references: one or more sets of references.
        most: maximum gains, and maximum losses, to show.
        tokenize: sacreBLEU's tokeniser, to count the tokens of outputs and references.
    """
    values = {
        name: [[metric.corpus_score(list(out), None).score for out in system.outputs]
               for system in systems]
        for name, metric in metrics.items()
    }  # fmt: skip
    typical = [_nearest_to_mean(seeds) for seeds in next(iter(values.values()))]
    outputs = [system.outputs[seed] for system, seed in zip(systems, typical, strict=True)]
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
    chrf = [_sentence_chrf(output, references) for output in outputs]
    others = list(zip(systems, outputs, chrf, strict=True))[1:]
    wins = [
        _wins(system.name, chrf[0], own_chrf, texts | {system.name: output}, most)
        for system, output, own_chrf in others
    ]
    ratios = [_length_ratio(output, references, tokenize) for output in outputs]
    return Comparison(systems, scores, ratios, tokenize, wins)


def _nearest_to_mean(values: Sequence[float]) -> int:
    mean = Spread.of(values).mean
    return min(range(len(values)), key=lambda index: abs(values[index] - mean))


def _sentence_chrf(outputs: Sequence[str], references: Sequence[Sequence[str]]) -> list[float]:
    metric = CHRF()
    pairs = zip(outputs, zip(*references, strict=True), strict=True)
    return [metric.sentence_score(output, list(targets)).score for output, targets in pairs]


def _wins(
    name: str,
    baseline: Sequence[float],
    scores: Sequence[float],
    texts: Mapping[str, Sequence[str]],
    most: int,
) -> Wins:
    gains = [after - before for before, after in zip(baseline, scores, strict=True)]
    order = sorted(range(len(gains)), key=lambda line: gains[line], reverse=True)
    chosen = [line for line in order[:most] if gains[line] > _EQUAL]
    last = order[max(0, len(order) - most) :]
    chosen += [line for line in last if gains[line] < -_EQUAL]
    largest = [
        Sentence(line + 1, {kind: text[line] for kind, text in texts.items()}, gains[line])
        for line in chosen
    ]
    return Wins(name, gains, largest)


def _length_ratio(
    outputs: Sequence[str], references: Sequence[Sequence[str]], tokenize: str
) -> float:
    metric = BLEU(tokenize=tokenize, force=True)
    result = metric.corpus_score(list(outputs), [list(lines) for lines in references])
    return result.sys_len / max(result.ref_len, 1)
