"""Comparison of systems on one test set: scores, significance, sentences, settings."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sacrebleu.metrics import CHRF
from sacrebleu.metrics.base import Metric

from tf_transformer.base.errors import shortened
from tf_transformer.base.output import ReportPart, Table
from tf_transformer.evaluation import (
    Spread,
    bleu_and_length,
    make_metric,
    paired_tests,
    without_blanks,
)
from tf_transformer.run import Run
from tf_transformer.run.run import NOT_EVALUATED, what_is_unfinished

logger = logging.getLogger(__name__)

NEAREST = (
    "± is the standard deviation over seeds; intervals, p-values, lengths and sentences are "
    "those of the seed nearest to the mean."
)
UNCORRECTED = "p-values are not corrected for multiple comparisons."
_EQUAL = 0.005  # points of chrF within which two sentences count as equally good
_LONGEST = 60  # maximum characters of a setting's value

_Texts = Sequence[str]


@dataclass(frozen=True)
class System:
    """A system's translations of the test set."""

    name: str  # as shown in reports
    outputs: Sequence[_Texts]  # the translations of each of its seeds
    # By "section.field"; empty if unknown.
    settings: Mapping[str, Any] = field(default_factory=dict)


def members(path: Path) -> list[Path]:
    """Lists the finished runs of `train --seeds` in order of seed; none in other folders."""
    if (path / "config.json").exists():
        return []
    finished = []
    for folder in (file.parent for file in path.glob("seed-*/config.json")):
        run = Run.open(folder)
        reason = what_is_unfinished(run, run.config.training.steps)
        if reason in ("", NOT_EVALUATED):  # the latter after `tf-transformer average`
            finished.append(folder)
        else:
            logger.warning("%s is skipped: %s; resume its training", folder, reason)
    return sorted(finished, key=lambda folder: (len(folder.name), folder.name))


def shared_settings(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the settings of runs that differ only in their seed."""
    seeds = [run.config.training.seed for run in runs]
    return runs[0].config.flat() | {"training.seed": seeds if len(seeds) > 1 else seeds[0]}


def compare_outputs(
    systems: Sequence[System],
    metrics: Mapping[str, Metric],
    sources: _Texts,
    references: Sequence[_Texts],
    most: int = 5,
    tokenize: str = "13a",
) -> list[ReportPart]:
    """Compares two systems or more with the first, the baseline.

    For a system with several seeds, tests and sentences use the seed whose score by the first
    metric is nearest to the mean. `sources` is empty if they are unknown; `references` has one
    set or more; `most` limits the gains shown, and the losses; `tokenize` counts the tokens of
    outputs and references. Returns the parts of a report in Markdown, for `output.joined`.
    """
    values = {
        name: [[metric.corpus_score(list(out), None).score for out in system.outputs]
               for system in systems]
        for name, metric in metrics.items()
    }  # fmt: skip
    typical = [_nearest_to_mean(seeds) for seeds in next(iter(values.values()))]
    outputs = [system.outputs[seed] for system, seed in zip(systems, typical, strict=True)]
    parts: list[ReportPart] = []
    for name, metric in metrics.items():
        parts += _scores(name, metric, systems, values[name], outputs)
    parts += _sentences([system.name for system in systems], outputs, sources, references,
                        most, tokenize)  # fmt: skip
    return [*parts, *_settings(systems)]


def _nearest_to_mean(values: Sequence[float]) -> int:
    mean = Spread.of(values).mean
    return min(range(len(values)), key=lambda index: abs(values[index] - mean))


def _scores(
    name: str,
    metric: Metric,
    systems: Sequence[System],
    values: Sequence[Sequence[float]],
    outputs: Sequence[_Texts],
) -> list[ReportPart]:
    spreads = [Spread.of(seeds) for seeds in values]
    tests = paired_tests(metric, outputs)
    rows: list[list[str]] = []
    for system, spread, tested in zip(systems, spreads, tests, strict=True):
        difference = f"{spread.mean - spreads[0].mean:+.2f}" if rows else ""
        p_values = tested.bootstrap, tested.randomisation
        rows.append(
            [
                system.name,
                str(spread),
                f"{tested.low:.2f} to {tested.high:.2f}",
                difference,
                *("" if value is None else f"{value:.4f}" for value in p_values),
            ]
        )
    header = ["system", name, "95 % interval", "difference", "p bootstrap", "p randomisation"]
    notes = [str(metric.get_signature())]
    notes += [NEAREST] * any(len(system.outputs) > 1 for system in systems)
    notes += [UNCORRECTED] * (len(rows) > 2)
    title = f"## {name}, and the difference from {systems[0].name}"
    return [title, Table(header, rows), *notes]


def _sentences(
    names: Sequence[str],
    outputs: Sequence[_Texts],
    sources: _Texts,
    references: Sequence[_Texts],
    most: int,
    tokenize: str,
) -> list[ReportPart]:
    """Counts the sentences that each system translates better or worse than the first."""
    texts = {"source": sources} if sources else {}
    texts |= {"reference": references[0], names[0]: outputs[0]}
    references = without_blanks(references, say=True)
    before = _sentence_chrf(outputs[0], references)
    bleu = make_metric("bleu", references, tokenize)
    rows: list[list[str]] = []
    largest: list[ReportPart] = []
    for name, output in zip(names, outputs, strict=True):
        row = [name, f"{bleu_and_length(bleu, output).length_ratio:.3f}", "", "", "", ""]
        if rows:
            after = _sentence_chrf(output, references)
            gains = [new - old for old, new in zip(before, after, strict=True)]
            better = sum(gain > _EQUAL for gain in gains)
            worse = sum(gain < -_EQUAL for gain in gains)
            counts = (f"{count:,}" for count in (better, worse, len(gains) - better - worse))
            row[2:] = [*counts, f"{sum(gains) / len(gains):+.2f}"]
            largest += _largest(name, gains, texts | {name: output}, most)
        rows.append(row)
    header = ["system", "length ratio", "better", "worse", "equal", "mean difference"]
    note = (
        "Better and worse by sentence-level chrF2; lengths in tokens of sacreBLEU's tokeniser "
        f"{tokenize}."
    )
    title = f"## Lengths, and sentences compared with {names[0]}"
    return [title, Table(header, rows), note, *largest]


def _largest(
    name: str, gains: Sequence[float], texts: Mapping[str, _Texts], most: int
) -> list[ReportPart]:
    """Shows the sentences of the largest gains, then of the largest losses."""
    by_gain = sorted(range(len(gains)), key=lambda line: gains[line], reverse=True)
    chosen = [line for line in by_gain[:most] if gains[line] > _EQUAL]
    chosen += [line for line in by_gain[max(0, len(gains) - most) :] if gains[line] < -_EQUAL]
    rows = []
    for line in chosen:
        mark = [f"{line + 1:,}", f"{gains[line]:+.2f}"]
        for kind, lines in texts.items():
            rows.append([*mark, kind, lines[line]])
            mark = ["", ""]
    table = Table(["line", "chrF2", "", "text"], rows)
    return [f"## Largest differences of {name}", table] if rows else []


def _sentence_chrf(outputs: _Texts, references: Sequence[_Texts]) -> list[float]:
    metric = CHRF()
    pairs = zip(outputs, zip(*references, strict=True), strict=True)
    return [metric.sentence_score(output, list(targets)).score for output, targets in pairs]


def _settings(systems: Sequence[System]) -> list[ReportPart]:
    known = [system for system in systems if system.settings]
    rows = []
    for name in known[0].settings if known else ():
        values = [system.settings[name] for system in known]
        if any(value != values[0] for value in values):
            rows.append([name, *(shortened(str(value), _LONGEST) for value in values)])
    header = ["setting", *(system.name for system in known)]
    return ["## Settings that differ", Table(header, rows)] if rows else []
