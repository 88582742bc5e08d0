"""The results of rows beside the paper's: a table, a chart, and parameter counts."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import keras

from experiments.common import new_figure, save, table, write
from experiments.table3.rows import BASE, PRINTED, Printed, Settings, change
from tf_transformer import Run, Transformer, UserError, evaluation

_DECIMALS = {"perplexity": 2, "bleu": 1}  # of the paper's figures


@dataclass(frozen=True)
class RowResult:
    """A row's results at its last checkpoint, without averaging."""

    row: str  # in Table 3, such as "C-N2"
    change: str  # from base, such as "N 2"
    seeds: int  # their number
    perplexity: evaluation.Spread  # on the dev set, per word piece, without label smoothing
    bleu: evaluation.Spread  # sacreBLEU on the dev set
    parameters: int  # their number

    @property
    def printed(self) -> Printed:
        """The paper's figures."""
        return PRINTED[self.row]


def finished_rows(output: Path) -> dict[str, list[Run]]:
    """Returns the finished runs in a folder by row, in the paper's order."""
    found = {}
    for row in PRINTED:
        folders = sorted(file.parent for file in output.glob(f"{row}-seed*/config.json"))
        if runs := [run for run in map(Run.open, folders) if run.is_finished]:
            found[row] = runs
    return found


def result(row: str, runs: Sequence[Run], changed: str) -> RowResult:
    """Returns the last evaluations of the runs of a row, which are finished."""
    last = [run.history()[-1] for run in runs]
    perplexity, bleu = (
        evaluation.Spread.of([record[f"valid_{name}"] for record in last]) for name in _DECIMALS
    )
    count = parameter_count(_settings(runs[0]))
    return RowResult(row, changed, len(runs), perplexity, bleu, count)


def _settings(run: Run) -> Settings:
    sections = ((name, getattr(run.config, name)) for name in ("model", "training"))
    return {
        f"{section}.{field}": value
        for section, fields in sections
        for field, value in dataclasses.asdict(fields).items()
    }


def write_report(output: Path, base: Settings) -> str:
    """Writes the finished rows of a folder to table3.md and, with base, to table3.png and .svg.

    `base` has the settings from which the rows' changes are told, unless a run of base is
    finished. Returns the report. Raises UserError if no row is finished.
    """
    found = finished_rows(output)
    if not found:
        raise UserError(f"No row in {output} has a result yet.")
    base = _settings(found[BASE][0]) if BASE in found else base
    rows = []
    for row, runs in found.items():
        changes = change(_settings(runs[0]), base).items()
        rows.append(result(row, runs, ", ".join(f"{name} {each}" for name, each in changes)))
    first = next(iter(found.values()))[0]
    report = f"{_caption(first, rows)}\n\n{results_table(rows)}"
    write(output / "table3.md", f"{report}\n")
    if _base_of(rows) and len(rows) > 1:
        draw_differences(rows, output / "table3.png", output / "table3.svg")
    return report


def _caption(run: Run, rows: Sequence[RowResult]) -> str:
    """Describes our results: the data and training of one of the runs, seeds and signature."""
    model, training, data = run.config.model, run.config.training, run.config.data
    text = ", ".join(data.train) or "the built-in corpus"
    seeds = " or ".join(map(str, sorted({row.seeds for row in rows})))
    return (
        f"{rows[0].row}: N {model.num_layers}, d_model {model.d_model}, d_ff {model.d_ff}, "
        f"h {model.num_heads}, vocabulary {model.vocab_size:,}; "
        f"{training.steps:,} steps of {training.batch_tokens:,} positions; "
        f"{text}; seeds per row: {seeds}.\n"
        "Perplexity (per word piece, not smoothed) and BLEU are those of the last checkpoint "
        f"on the dev set. Our BLEU: {evaluation.bleu_signature(data.bleu_tokenizer)}; the "
        "paper's is tokenised."
    )


def results_table(rows: Sequence[RowResult]) -> str:
    """Returns a line per row: results and their differences from base, ours and the paper's.

    If base is not among the rows, only the paper's differences are shown.
    """
    base = _base_of(rows)
    header = [
        "row", "change", "PPL", "to base", "paper", "to base", "BLEU", "to base", "paper",
        "to base", "params (M)", "paper",
    ]  # fmt: skip
    lines = [
        [
            row.row,
            row.change,
            *_figures(row, base, "perplexity"),
            *_figures(row, base, "bleu"),
            _millions(row.parameters),
            row.printed.millions or "",
        ]
        for row in rows
    ]
    return table(header, lines, "llr")


def _base_of(rows: Sequence[RowResult]) -> RowResult | None:
    return next((row for row in rows if row.row == BASE), None)


def _figures(row: RowResult, base: RowResult | None, name: str) -> list[str]:
    """Formats our result and its difference from base, then those of the paper."""
    ours, printed = getattr(row, name), getattr(row.printed, name)
    cells = [str(ours), "", f"{printed:.{_DECIMALS[name]}f}", ""]
    if row.row != BASE:
        if base is not None:
            cells[1] = f"{ours.mean - getattr(base, name).mean:+.2f}"
        change_printed = printed - getattr(PRINTED[BASE], name)
        cells[3] = f"{change_printed:+.{_DECIMALS[name]}f}"
    return cells


def parameter_count(settings: Settings) -> int:
    """Counts the parameters of the model of settings, without making its weights."""
    fields = [name for name in settings if name.startswith("model.")]
    arguments = {name.removeprefix("model."): settings[name] for name in fields}
    with keras.StatelessScope(initialize_variables=False):
        count = Transformer(**arguments).count_params()
    keras.utils.clear_session()  # forgets the variables, which were never initialised
    return count


def parameters_table(planned: Mapping[str, Settings]) -> str:
    """Returns a line per row, including base: its parameter count, ours and the paper's."""
    counts = {row: parameter_count(settings) for row, settings in planned.items()}
    lines = []
    for row, settings in planned.items():
        to_base = f"{(counts[row] - counts[BASE]) / 1e6:+.3f}" if row != BASE else ""
        changed = ", ".join(f"{k} {v}" for k, v in change(settings, planned[BASE]).items())
        printed = PRINTED[row].millions or ""
        lines.append(
            [row, changed, f"{counts[row]:,}", _millions(counts[row]), to_base, printed]
        )
    return table(["row", "change", "parameters", "M", "to base", "paper M"], lines, "llr")


def _millions(count: int) -> str:
    return f"{count / 1e6:.{1 if count >= 10e6 else 3}f}"


def draw_differences(rows: Sequence[RowResult], *paths: Path) -> None:
    """Draws the differences from base, the paper's in white and ours in grey.

    The two have separate scales, since magnitudes may differ greatly: compare signs and the
    order of the rows. Our bars are hatched where their sign is not the paper's. `rows` must
    have base and others.
    """
    [base] = [row for row in rows if row.row == BASE]
    others = [row for row in rows if row is not base]
    labels = [row.row for row in others]
    figure = new_figure(12, 1.8 + 0.26 * len(others))
    axes = figure.subplots(1, 4, sharey=True)
    any_opposite = False
    for name, (left, right) in zip(("perplexity", "bleu"), axes.reshape(2, 2), strict=True):
        printed = [getattr(row.printed, name) - getattr(base.printed, name) for row in others]
        spreads = [getattr(row, name) for row in others]
        ours = [spread.mean - getattr(base, name).mean for spread in spreads]
        deviations = [spread.deviation or 0 for spread in spreads]
        opposite = [one * other < 0 for one, other in zip(ours, printed, strict=True)]
        any_opposite |= any(opposite)
        left.barh(labels, printed, color="white", edgecolor="black")
        right.barh(
            labels,
            ours,
            xerr=deviations if any(deviations) else None,
            color=["white" if each else "0.65" for each in opposite],
            hatch=["////" if each else "" for each in opposite],
            edgecolor="black",
            capsize=2,
        )
        title = "BLEU" if name == "bleu" else name
        left.set_title(f"{title}, the paper's", fontsize="medium")
        right.set_title(f"{title}, ours", fontsize="medium")
    for panel in axes:
        panel.axvline(0, color="black", linewidth=0.8)
        panel.grid(axis="x", alpha=0.3)
        panel.set_axisbelow(True)
    figure.suptitle("Rows of Table 3 minus base")
    if any_opposite:
        figure.supxlabel("hatched: not in the paper's direction", fontsize="medium")
    axes[0].invert_yaxis()  # rows from top to bottom, as in the table
    save(figure, *paths)
