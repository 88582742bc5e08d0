"""Table 3 with our results beside the paper's, as Markdown and as a picture."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.evaluation.bleu import bleu
from tf_transformer.evaluation.comparison import Spread
from tf_transformer.files import write_text
from tf_transformer.output import MARKDOWN, Part, Table, joined
from tf_transformer.plots.figure import new_figure, save
from tf_transformer.run import Run
from tf_transformer.studies.ablation.rows import BASE, ROWS, change, depth
from tf_transformer.studies.ablation.training import finished_runs, read_settings
from tf_transformer.studies.cost import TABLE3_PRINTED, Printed, parameter_count

PARAMETERS_NOTE = (
    "No vocabulary size gives all of the paper's counts, which contradict each other:\n"
    "from C-d1024 to big, d_ff doubles, which adds 50.4 M weights; the paper says 45.\n"
    "With its 37,000 pieces every row is smaller than in the paper, except big, which is\n"
    "larger; with 41,100 (--set model.vocab_size=41100) every row except big agrees."
)
_DECIMALS = {"perplexity": 2, "bleu": 1}  # of the paper's figures


@dataclass(frozen=True)
class Compared:
    """A row's results at its last checkpoint, without averaging, and the paper's.

    Attributes:
        row: name in Table 3, such as "C-N2".
        change: difference from base, such as "N 2".
        perplexity: dev perplexity per word piece, without label smoothing, over the seeds.
        bleu: dev sacreBLEU, over the seeds.
        parameters: number of parameters.
        printed: figures of the paper.
    """

    row: str
    change: str
    perplexity: Spread
    bleu: Spread
    parameters: int
    printed: Printed


def compare(runs: Mapping[str, Sequence[Run]], base: Config) -> list[Compared]:
    """Pairs the last evaluations of the finished runs of each row with the paper's results.

    Args:
        runs: from `finished_runs`.
        base: the configuration from which the rows differ.
    """
    return [
        Compared(
            row=row,
            change=change(seeds[0].config, base),
            perplexity=Spread.of([run.history()[-1]["valid_perplexity"] for run in seeds]),
            bleu=Spread.of([run.history()[-1]["valid_bleu"] for run in seeds]),
            parameters=parameter_count(seeds[0].config.model),
            printed=TABLE3_PRINTED[ROWS[row]],
        )
        for row, seeds in runs.items()
    ]


def results_table(rows: Sequence[Compared]) -> Table:
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
    return Table(header, lines)


def caption(base: Config, runs: Mapping[str, Sequence[Run]]) -> str:
    """Describes our results: the base model, its training, seeds and signature."""
    model, training, data = base.model, base.training, base.data
    text = ", ".join(data.train) or "the built-in corpus"
    languages = f" {data.source}-{data.target}" if data.train else ""
    signature = bleu(["a"], ["a"], tokenize=data.bleu_tokenizer).signature
    counts = sorted({len(seeds) for seeds in runs.values()})
    seeds = " to ".join(map(str, dict.fromkeys((counts[0], counts[-1]))))
    return (
        f"Base: N {depth(model)}, d_model {model.d_model}, d_ff {model.d_ff}, "
        f"h {model.num_heads}, vocabulary {model.vocab_size:,}; "
        f"{training.steps:,} steps of {training.batch_tokens:,} positions; "
        f"{text}{languages}; seeds per row: {seeds}.\n"
        "Perplexity (per word piece, not smoothed) and BLEU are those of the last checkpoint "
        f"on the dev set. Our BLEU: {signature}; the paper's is tokenised."
    )


def _base_of(rows: Sequence[Compared]) -> Compared | None:
    return next((row for row in rows if row.row == BASE), None)


def _figures(row: Compared, base: Compared | None, name: str) -> list[str]:
    """Formats our result and its difference from base, then those of the paper."""
    ours, printed = getattr(row, name), getattr(row.printed, name)
    cells = [str(ours), "", f"{printed:.{_DECIMALS[name]}f}", ""]
    if row.row != BASE:
        if base is not None:
            cells[1] = f"{ours.mean - getattr(base, name).mean:+.2f}"
        change_printed = printed - getattr(TABLE3_PRINTED[BASE], name)
        cells[3] = f"{change_printed:+.{_DECIMALS[name]}f}"
    return cells


def parameters_table(configs: dict[str, Config]) -> Table:
    """Returns a line per row, including base: its parameter count, ours and the paper's."""
    counts = {row: parameter_count(config.model) for row, config in configs.items()}
    base, printed_base = counts[BASE], TABLE3_PRINTED[BASE].millions
    lines = []
    for row, config in configs.items():
        printed = TABLE3_PRINTED[ROWS[row]].millions
        to_base = ""
        if row != BASE and printed is not None and printed_base is not None:
            to_base = f"{printed - printed_base:+d}"
        lines.append(
            [
                row,
                change(config, configs[BASE]),
                f"{counts[row]:,}",
                _millions(counts[row]),
                "" if row == BASE else _millions(counts[row] - base, sign="+"),
                printed or "",
                to_base,
            ]
        )
    header = ["row", "change", "parameters", "M", "to base", "paper M", "to base"]
    return Table(header, lines)


def _millions(count: int, sign: str = "") -> str:
    return f"{count / 1e6:{sign}.{1 if abs(count) >= 10e6 else 3}f}"


def write_report(output: Path) -> list[Part]:
    """Writes the finished rows of a folder to table3.md and, with base, to table3.png and .svg.

    Returns:
        The parts of the report.

    Raises:
        UserError: if no row is finished.
    """
    base, runs = read_settings(output), finished_runs(output)
    if not runs:
        raise UserError(f"No row in {output} has a result yet.")
    rows = compare(runs, base)
    report: list[Part] = [caption(base, runs), results_table(rows)]
    write_text(output / "table3.md", joined(report, MARKDOWN))
    if _base_of(rows) and len(rows) > 1:
        for suffix in ("png", "svg"):
            draw_differences(rows, output / f"table3.{suffix}")
    return report


def draw_differences(rows: Sequence[Compared], path: Path) -> None:
    """Draws the differences from base, the paper's in white and ours in grey.

    The two have separate scales, since magnitudes may differ greatly: compare signs and the
    order of the rows. Our bars are hatched where their sign is not the paper's. `rows` must
    have base and others.
    """
    [base] = [row for row in rows if row.row == BASE]
    others = [row for row in rows if row is not base]
    figure = new_figure(12, 1.8 + 0.26 * len(others))
    from matplotlib.patches import Patch  # `new_figure` has checked for matplotlib

    axes, hatches = figure.subplots(1, 4, sharey=True), []
    labels = [row.row for row in others]
    for name, (left, right) in zip(("perplexity", "bleu"), axes.reshape(2, 2), strict=True):
        printed = [getattr(row.printed, name) - getattr(base.printed, name) for row in others]
        spreads = [getattr(row, name) for row in others]
        ours = [spread.mean - getattr(base, name).mean for spread in spreads]
        deviations = [spread.deviation or 0 for spread in spreads]
        opposite = [one * other < 0 for one, other in zip(ours, printed, strict=True)]
        hatches += opposite
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
    if any(hatches):
        hatched = Patch(facecolor="white", edgecolor="black", hatch="////")
        figure.legend([hatched], ["not in the paper's direction"], loc="outside lower center")
    axes[0].invert_yaxis()  # rows from top to bottom, as in the table
    save(figure, path)
