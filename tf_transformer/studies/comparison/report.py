"""A comparison as text, Markdown or LaTeX, and as a picture."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_transformer.errors import shortened
from tf_transformer.output import MARKDOWN, Part, Table
from tf_transformer.plots.figure import STYLES, new_figure, save
from tf_transformer.studies.comparison.results import Comparison, Scored, Wins

# By format: the style of tables, and templates of a section's heading and of a note.
FORMATS = {
    "text": ("simple", "{}", "{}"),
    "markdown": (MARKDOWN, "## {}", "{}"),
    "latex": ("latex_booktabs", "% {}", "% {}"),
}
NEAREST = (
    "± is the standard deviation over seeds; intervals, p-values, lengths and sentences are "
    "those of the seed nearest to the mean."
)
UNCORRECTED = "p-values are not corrected for multiple comparisons."
_LONGEST = 60  # maximum characters of a setting's value


@dataclass(frozen=True)
class Section:
    """A table with its title, and notes below it."""

    title: str
    table: Table
    notes: Sequence[str] = ()


def sections(compared: Comparison) -> list[Section]:
    """Returns the sections of a report that have rows."""
    every = [
        *(_scores(compared, name, scored) for name, scored in compared.scores.items()),
        _sentences(compared),
        *(_largest(wins) for wins in compared.wins),
        _settings(compared),
        _costs(compared),
    ]
    return [section for section in every if section.table.rows]


def parts(sections: Sequence[Section], form: str) -> list[Part]:
    """Returns the parts of a report for `tables.joined`; `form` is a key of `FORMATS`."""
    _, heading, note = FORMATS[form]
    report: list[Part] = []
    for section in sections:
        notes = (note.format(text) for text in section.notes)
        report += [heading.format(section.title), section.table, *notes]
    return report


def _scores(compared: Comparison, name: str, scored: Scored) -> Section:
    first = scored.spreads[0].mean
    rows = [
        [
            system.name,
            str(spread),
            f"{tested.low:.2f} to {tested.high:.2f}",
            f"{spread.mean - first:+.2f}" if row else "",
            _p(tested.bootstrap),
            _p(tested.randomisation),
        ]
        for row, (system, spread, tested) in enumerate(
            zip(compared.systems, scored.spreads, scored.tested, strict=True)
        )
    ]
    header = ["system", name, "95 % interval", "difference", "p bootstrap", "p randomisation"]
    notes = [scored.signature]
    notes += [NEAREST] * any(len(system.outputs) > 1 for system in compared.systems)
    notes += [UNCORRECTED] * (len(rows) > 2)
    return Section(f"{name}, and the difference from {rows[0][0]}", Table(header, rows), notes)


def _p(value: float | None) -> str:
    return "" if value is None else f"{value:.4f}"


def _sentences(compared: Comparison) -> Section:
    baseline = compared.systems[0].name
    rows = [[baseline, f"{compared.length_ratios[0]:.3f}", "", "", "", ""]]
    for wins, ratio in zip(compared.wins, compared.length_ratios[1:], strict=True):
        mean = sum(wins.gains) / len(wins.gains)
        counts = (f"{count:,}" for count in wins.counts)
        rows.append([wins.name, f"{ratio:.3f}", *counts, f"{mean:+.2f}"])
    header = ["system", "length ratio", "better", "worse", "equal", "mean difference"]
    tokens = f"lengths in tokens of sacreBLEU's tokeniser {compared.tokenize}"
    notes = [f"Better and worse by sentence-level chrF2; {tokens}."]
    return Section(
        f"Lengths, and sentences compared with {baseline}", Table(header, rows), notes
    )


def _largest(wins: Wins) -> Section:
    rows = []
    for sentence in wins.largest:
        mark = [f"{sentence.number:,}", f"{sentence.gain:+.2f}"]
        for kind, text in sentence.texts.items():
            rows.append([*mark, kind, text])
            mark = ["", ""]
    header = ["line", "chrF2", "", "text"]
    return Section(f"Largest differences of {wins.name}", Table(header, rows))


def _settings(compared: Comparison) -> Section:
    known = [system for system in compared.systems if system.settings]
    names = list(dict.fromkeys(name for system in known for name in system.settings))
    rows = []
    for name in names:
        values = [system.settings.get(name) for system in known]
        if any(value != values[0] for value in values):
            rows.append([name, *map(_value, values)])
    header = ["setting", *(system.name for system in known)]
    return Section("Settings that differ", Table(header, rows))


def _value(value: Any) -> str:
    is_list = isinstance(value, (list, tuple))
    return shortened(", ".join(map(str, value)) if is_list else str(value), _LONGEST)


def _costs(compared: Comparison) -> Section:
    known = [system for system in compared.systems if system.cost]
    names = list(dict.fromkeys(name for system in known for name in system.cost))
    rows = [[system.name, *(system.cost.get(name, "") for name in names)] for system in known]
    several = any(len(system.outputs) > 1 for system in known)
    notes = ["Updates, tokens and hours are those of all seeds together."] * several
    return Section("Training", Table(["system", *names], rows), notes)


def draw_comparison(compared: Comparison, path: Path) -> None:
    """Draws a panel of scores for each metric, and one of the gains per sentence."""
    panels, names = 1 + len(compared.scores), [system.name for system in compared.systems]
    figure = new_figure(4 * panels, max(3.0, 1.5 + 0.4 * len(names)))
    *metrics, sentences = figure.subplots(1, panels)
    for axes, (name, scored) in zip(metrics, compared.scores.items(), strict=True):
        for row, tested in enumerate(scored.tested):
            middle, half = (tested.low + tested.high) / 2, (tested.high - tested.low) / 2
            axes.errorbar(middle, row, xerr=half, capsize=4, color="black")
            style = STYLES[row % len(STYLES)] | {"linestyle": "none"}
            axes.plot(scored.spreads[row].mean, row, **style)
        axes.set(xlabel=f"{name}, 95 % interval", ylim=(len(names) - 0.5, -0.5))
        axes.set_yticks(range(len(names)), names if axes is metrics[0] else [])
        axes.grid(axis="x", alpha=0.3)
    for row, wins in enumerate(compared.wins, start=1):
        style = STYLES[row % len(STYLES)] | {"marker": "None"}
        shares = [(rank + 1) / len(wins.gains) for rank in range(len(wins.gains))]
        sentences.plot(sorted(wins.gains), shares, label=wins.name, **style)
    sentences.axvline(0, color="black", linewidth=0.8)
    sentences.set(xlabel="difference in chrF2", ylabel="share of sentences")
    sentences.set_title(f"minus {names[0]}", fontsize="medium")
    sentences.grid(alpha=0.3)
    sentences.legend(fontsize="small")
    save(figure, path)
