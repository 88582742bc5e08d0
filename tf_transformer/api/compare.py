"""Comparison of systems on one test set: scores, significance, sentences, settings.

Runs and exports are translated first; files have translations.
"""

import functools
import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from sacrebleu.metrics import CHRF
from sacrebleu.metrics.base import Metric

from tf_transformer.base.errors import shortened
from tf_transformer.base.output import ProgressBars, ReportPart, Table, single_line
from tf_transformer.config.config import DataConfig
from tf_transformer.data.vocabulary import usable_tag
from tf_transformer.evaluation import (
    SACREBLEU,
    Spread,
    bleu_and_length,
    make_metric,
    paired_tests,
    tokenizer_for,
    without_blanks,
)
from tf_transformer.export.card import config_in, read_card
from tf_transformer.export.versions import find_export
from tf_transformer.loading.load import load
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


def compare_systems(
    paths: Sequence[str],
    texts: Mapping[str, Sequence[str]],
    runs: Mapping[str, Sequence[Run]],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tag: str | None = None,
    metrics: Sequence[str] = tuple(SACREBLEU),
    tokenize: str | None = None,
    most: int = 5,
) -> list[ReportPart]:
    """Compares each system with the first; returns a report in Markdown, for `output.joined`.

    By path, `texts` has the translations of the systems that are files, and `runs` the runs of
    the others, one per seed, or none for an export. Without runs, `sources` is empty. The tag,
    which exports lack, stands before each source. The default of `tokenize` is that of the
    first run or export. At most `most` gains, and losses, are shown.
    """
    found = {path: find_export(Path(path)) for path, seeds in runs.items() if not seeds}
    exports = {path: config_in(read_card(one)) if one else None for path, one in found.items()}
    tags = {
        run.path: usable_tag(tag, run.config.data, run.require_tokenizer())
        for seeds in runs.values()
        for run in seeds
    }
    if tag and exports:
        logger.warning("`tag` has no effect on exports: %s", ", ".join(exports))
    if tokenize is None:
        configs = (seeds[0].config if seeds else exports[path] for path, seeds in runs.items())
        data = next((config.data for config in configs if config), DataConfig())
        tokenize = tokenizer_for(data.bleu_tokenizer, references[0])
    systems = []
    for path, name in zip(paths, _names(paths), strict=True):
        if path in texts:
            systems.append(System(name, [texts[path]]))
        elif seeds := runs[path]:
            outputs = [_load_and_translate(run.path, sources, tags[run.path]) for run in seeds]
            systems.append(System(name, outputs, shared_settings(seeds)))
        else:
            config = exports[path]
            outputs = [_load_and_translate(Path(path), sources)]
            systems.append(System(name, outputs, config.flat() if config else {}))
    by_name = {name: make_metric(name, references, tokenize) for name in metrics}
    return compare_outputs(systems, by_name, sources, references, most, tokenize)


def _names(paths: Sequence[str]) -> list[str]:
    """Shortens paths by their common folder."""
    try:
        common = os.path.commonpath([Path(path).parent for path in paths])
    except ValueError:  # absolute and relative paths
        return [*paths]
    return [os.path.relpath(path, common or ".") for path in paths]


def _load_and_translate(
    path: Path, sources: Sequence[str], tag: str | None = None
) -> list[str]:
    return translated_lines(load(path, task="translation", tag=tag), sources, str(path))


def translated_lines(
    translator, sources: Sequence[str], label: str = "translated"
) -> list[str]:
    """Translates sentences below a bar named `label`; returns a single line for each."""
    with ProgressBars(len(sources)) as bars:
        report = functools.partial(bars, label)
        return [*map(single_line, translator.translate([*sources], progress=report))]


# --- The report --------------------------------------------------------------------------


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
