"""Table 3 of the paper, scaled down and trained on the user's data, beside the paper's."""

import logging
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import locked, write_text
from tf_transformer.base.output import MARKDOWN, Part, ProgressBars, Table, joined
from tf_transformer.base.system import import_tensorflow
from tf_transformer.config import SETTINGS, Config, settings_with
from tf_transformer.config.presets import TABLE3, preset
from tf_transformer.config.settings import parse_assignments
from tf_transformer.plots import new_figure, save
from tf_transformer.reports.cost import parameter_count
from tf_transformer.run import Run, require_created_by
from tf_transformer.run.run import differences
from tf_transformer.tasks.checks import check_training
from tf_transformer.tasks.registry import task_named
from tf_transformer.training.sessions import is_finished, train_in_turn

if TYPE_CHECKING:  # `--help` waits for no sacreBLEU
    from tf_transformer.evaluation import Spread

logger = logging.getLogger(__name__)

BASE = "base"
# In the order of the paper; "C-N2" is the preset "table3-C-N2".
ROWS = {name.removeprefix("table3-"): name for name in TABLE3}
GROUPS = ("A", "B", "C", "D", "E")

_BASE_STEPS = TABLE3[BASE].training.steps
_SETTINGS_FILE = "base.json"
_DECIMALS = {"perplexity": 2, "bleu": 1}  # of the paper's figures


# --- The paper's figures --------------------------------------------------------------------


@dataclass(frozen=True)
class Printed:
    """A row of Table 3, measured on newstest2013 without averaging checkpoints."""

    perplexity: float  # per word piece
    bleu: float  # tokenised, as was usual in 2017
    millions: int | None = None  # of parameters; None where the table leaves it blank


# By preset. Where the table leaves the size blank (rows A, D, E), it is that of base.
TABLE3_PRINTED = {
    "base": Printed(4.92, 25.8, 65),
    "table3-A-h1": Printed(5.29, 24.9),
    "table3-A-h4": Printed(5.00, 25.5),
    "table3-A-h16": Printed(4.91, 25.8),
    "table3-A-h32": Printed(5.01, 25.4),
    "table3-B-dk16": Printed(5.16, 25.1, 58),
    "table3-B-dk32": Printed(5.01, 25.4, 60),
    "table3-C-N2": Printed(6.11, 23.7, 36),
    "table3-C-N4": Printed(5.19, 25.3, 50),
    "table3-C-N8": Printed(4.88, 25.5, 80),
    "table3-C-d256": Printed(5.75, 24.5, 28),
    "table3-C-d1024": Printed(4.66, 26.0, 168),
    "table3-C-ff1024": Printed(5.12, 25.4, 53),
    "table3-C-ff4096": Printed(4.75, 26.2, 90),
    "table3-D-drop0.0": Printed(5.77, 24.6),
    "table3-D-drop0.2": Printed(4.95, 25.5),
    "table3-D-ls0.0": Printed(4.67, 25.3),
    "table3-D-ls0.2": Printed(5.47, 25.7),
    "table3-E-learned": Printed(4.92, 25.7),
    "big": Printed(4.33, 26.4, 213),
}


# --- Configurations ------------------------------------------------------------------------


def select_rows(words: Sequence[str]) -> list[str]:
    """Returns the chosen rows in the order of the paper; all rows if `words` is empty.

    A word is a row ("C-N2") or a group of rows ("C"); any other raises UserError.
    """
    for word in words:
        if word not in ROWS and word not in GROUPS:
            raise UserError(
                f"Table 3 has no row {quoted(word)}. Choose from {', '.join(ROWS)}, or "
                f"{', '.join(GROUPS)} for all rows of a letter."
            )
    return [row for row in ROWS if not words or row in words or row.split("-")[0] in words]


def plan_rows(
    rows: Sequence[str],
    divisor: int,
    steps: int | None = None,
    values: Mapping[str, Any] | None = None,
    overrides: Sequence[str] = (),
) -> dict[str, Config]:
    """Returns the configurations of base and of `rows` at a scale.

    The scale divides every width (d_model, d_ff, d_k, d_v). Layers, heads, dropout, label
    smoothing, batch and vocabulary are not scaled. The schedule's peak learning rate,
    1 / sqrt(d_model * warmup_steps), grows as the widths and the warm-up shrink.

    `steps`, those of base, are by default divided like the widths; warm-up, evaluations and the
    steps of big scale in proportion. `values`, by "section.field", and `overrides`, like
    arguments of --set, are for every row. Raises UserError if a row is impossible at this
    scale, or a setting would undo a row.
    """
    named = dict(values or {}) | parse_assignments(overrides, SETTINGS)
    for name, option in (("training.seed", "--seeds"), ("training.steps", "--steps")):
        if name in named:
            raise UserError(f"ablate does not take --set {name}. Use {option} instead.")
    steps = steps or -(-_BASE_STEPS // divisor)
    plain = {row: _scaled(row, divisor, steps) for row in [BASE, *rows]}
    configs = {row: config.replace(named) for row, config in plain.items()}
    undone = [
        row
        for row, config in plain.items()
        if _differing(configs[row], configs[BASE]) != _differing(config, plain[BASE])
    ]
    if undone:
        settings = [name for name in named if name.startswith(("model.", "training.label"))]
        raise UserError(
            f"--set {', '.join(settings)} would undo the change of rows {', '.join(undone)}. "
            "Omit it, or omit these rows with --rows."
        )
    return configs


def _scaled(row: str, divisor: int, steps: int) -> Config:
    config, settings = preset(ROWS[row]), dict[str, Any]()
    model, training = config.model, config.training
    key_dim, value_dim = model.head_sizes
    sizes = {"d_model": model.d_model, "d_ff": model.d_ff}
    sizes |= {"key_dim": key_dim, "value_dim": value_dim}
    for name, size in sizes.items():
        # d_model has to be even, since sines and cosines are paired.
        if size % (2 * divisor if name == "d_model" else divisor):
            whole = "an even" if name == "d_model" else "a whole"
            raise UserError(
                f"At --scale {divisor}, {name} of row {row} must stay {whole} number. "
                f"Received: {size} / {divisor}. Choose another scale, or other rows."
            )
        if getattr(model, name):
            settings[f"model.{name}"] = size // divisor
    for name in ("steps", "warmup_steps", "evaluate_every"):
        number = getattr(training, name) * steps / _BASE_STEPS
        settings[f"training.{name}"] = max(1, round(number))
    # Table 3 averages no checkpoints.
    return config.replace({**settings, "training.keep_last": 1, "training.average_last": 1})


def change(config: Config, base: Config) -> str:
    """Returns a row's change in the paper's symbols, "h 4, d_k 128, d_v 128"; "" for base."""
    return ", ".join(f"{name} {_by_symbol(config)[name]}" for name in _differing(config, base))


def _differing(config: Config, base: Config) -> list[str]:
    """Returns the symbols in which a row differs from base."""
    before, now = _by_symbol(base), _by_symbol(config)
    return [name for name in now if now[name] != before[name]]


def _by_symbol(config: Config) -> dict[str, str]:
    model, training = config.model, config.training
    key_dim, value_dim = model.head_sizes
    return {
        "N": f"{model.num_layers}",
        "d_model": f"{model.d_model}",
        "d_ff": f"{model.d_ff}",
        "h": f"{model.num_heads}",
        "d_k": f"{key_dim}",
        "d_v": f"{value_dim}",
        "P_drop": f"{model.dropout:g}",
        "eps_ls": f"{training.label_smoothing:g}",
        "positions": model.positions,
        "steps": f"{training.steps:,}",
    }


# --- Training ------------------------------------------------------------------------------


def train_rows(
    configs: Mapping[str, Config],
    rows: Sequence[str],
    output: Path,
    *,
    seeds: Sequence[int] = (1,),
    seconds: float = 0.0,
    more: Sequence[str] = (),
) -> int:
    """Trains rows that are not finished, as runs in OUTPUT/ROW-seedN, seed after seed.

    They are ordinary runs that share a tokenizer and a tokenised corpus. `configs`, of base and
    of `rows`, are from `plan_rows`; `seconds` limits the time, 0 for no limit; `more` are
    further arguments of `tf-transformer train`. Returns the status of `train_in_turn`. Raises
    UserError if a row cannot be trained, or the folder has other files or rows with other
    settings.
    """
    if "TF_CONFIG" in os.environ:
        raise UserError("ablate trains on one machine: run it without TF_CONFIG.")
    _check_rows([configs[BASE], *(configs[row] for row in rows)])
    import_tensorflow()

    from tf_transformer.run.run_tokenizer import sized

    base = sized(configs[BASE])
    check_folder(output, base)
    with locked(output):
        shared = _share_text(output, base)
        runs = {
            output / f"{row}-seed{seed}": (base if row == BASE else configs[row]).replace(
                {**shared, "training.seed": seed}
            )
            for seed in seeds
            for row in rows
        }
        return train_in_turn(runs, lambda *run: [*_begun(*run), *more], seconds)


def _check_rows(configs: Sequence[Config]) -> None:
    """Refuses rows that cannot be trained, the first of which is base."""
    size = {"model.vocab_size": configs[0].model.vocab_size}  # of the shared tokenizer
    sized = [config.replace(size) for config in configs]
    # A check reads all of the text, so those that would have the same result are skipped.
    kinds = {
        config.model if config.training.init_from else config.model.positions: config
        for config in sized
    }
    for config in kinds.values():
        check_training(config)


def _begun(folder: Path, config: Config) -> list[str]:
    """Creates the run of a row on the shared corpus; returns its arguments of `train`."""
    run = Run.create_or_resume(folder, config)
    if not run.data.is_symlink():
        run.data.symlink_to(Path("..") / "data")
    return ["--config", str(folder / "config.json")]


def check_folder(output: Path, base: Config) -> None:
    """Raises UserError if a folder has other files or rows with other settings than `base`."""
    require_created_by("tf-transformer ablate", output, _SETTINGS_FILE)
    if not (output / _SETTINGS_FILE).exists():
        return
    changes = differences(read_settings(output), base, settings_with(same_results=True))
    if changes and _has_rows(output):
        raise UserError(
            f"{output} has rows with other settings: {'; '.join(changes)}. Use the same "
            "settings to resume, or another --output."
        )


def _has_rows(output: Path) -> bool:
    return any(output.glob("*-seed*"))


def _share_text(output: Path, base: Config) -> dict[str, object]:
    """Creates the tokenizer and the tokenised corpus of all rows; returns their settings.

    Without rows, an earlier tokenizer is deleted, since its settings may have been mistaken.
    """
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # leaves it to the rows' processes
    run = Run(output, base)
    if not _has_rows(output):
        run.tokenizer.unlink(missing_ok=True)
    write_text(output / _SETTINGS_FILE, base.to_json())
    with ProgressBars() as progress:
        task = task_named(base.task).task_class()(run, progress)
    logger.info("%s", task.describe())
    return {
        "data.tokenizer": base.data.tokenizer or str(output / "tokenizer.model"),
        "data.normalization": None,  # stored in the tokenizer, like the coverage
        "data.character_coverage": 1.0,
        "model.vocab_size": task.tokenizer.vocab_size,
    }


def read_settings(output: Path) -> Config:
    """Returns the configuration of base, from which all rows in a folder derive."""
    try:
        return Config.from_json((output / _SETTINGS_FILE).read_text("utf-8"))
    except OSError:
        raise UserError(
            f"{output} has no results yet. Expected the --output of an earlier `ablate`."
        ) from None


# --- Results -------------------------------------------------------------------------------


@dataclass(frozen=True)
class RowResult:
    """A row's results at its last checkpoint, without averaging."""

    row: str  # in Table 3, such as "C-N2"
    change: str  # from base, such as "N 2"
    seeds: int  # their number
    perplexity: "Spread"  # on the dev set, per word piece, without label smoothing
    bleu: "Spread"  # sacreBLEU on the dev set
    parameters: int  # their number

    @property
    def printed(self) -> Printed:
        """The paper's figures."""
        return TABLE3_PRINTED[ROWS[self.row]]


def finished_rows(output: Path, base: Config) -> list[RowResult]:
    """Returns the last evaluations of the finished runs in a folder, in the paper's order."""
    from tf_transformer.evaluation import Spread

    rows = []
    for row in ROWS:
        runs = [Run.open(file.parent) for file in output.glob(f"{row}-seed*/config.json")]
        runs = [run for run in runs if is_finished(run.path, run.config.training.steps)]
        if runs:
            config, last = runs[0].config, [run.history()[-1] for run in runs]
            perplexity, score = (
                Spread.of([record[f"valid_{name}"] for record in last]) for name in _DECIMALS
            )
            count = parameter_count(config.model)
            rows.append(
                RowResult(row, change(config, base), len(runs), perplexity, score, count)
            )
    return rows


def write_report(output: Path) -> list[Part]:
    """Writes the finished rows of a folder to table3.md and, with base, to table3.png and .svg.

    Returns the parts of the report. Raises UserError if no row is finished.
    """
    from tf_transformer.evaluation import bleu_signature

    base = read_settings(output)
    rows = finished_rows(output, base)
    if not rows:
        raise UserError(f"No row in {output} has a result yet.")
    run = Run.open(next(output.glob(f"{rows[0].row}-seed*")))
    signature = bleu_signature(run.config.data.bleu_tokenizer)  # which follows its text
    report: list[Part] = [_caption(base, rows, signature), results_table(rows)]
    write_text(output / "table3.md", joined(report, MARKDOWN))
    if _base_of(rows) and len(rows) > 1:
        for suffix in ("png", "svg"):
            draw_differences(rows, output / f"table3.{suffix}")
    return report


def _caption(base: Config, rows: Sequence[RowResult], signature: str) -> str:
    """Describes our results: the base model, its training, seeds and signature."""
    model, training, data = base.model, base.training, base.data
    text = ", ".join(data.train) or "the built-in corpus"
    seeds = " or ".join(map(str, sorted({row.seeds for row in rows})))
    return (
        f"Base: N {model.num_layers}, d_model {model.d_model}, d_ff {model.d_ff}, "
        f"h {model.num_heads}, vocabulary {model.vocab_size:,}; "
        f"{training.steps:,} steps of {training.batch_tokens:,} positions; "
        f"{text}; seeds per row: {seeds}.\n"
        "Perplexity (per word piece, not smoothed) and BLEU are those of the last checkpoint "
        f"on the dev set. Our BLEU: {signature}; the paper's is tokenised."
    )


def results_table(rows: Sequence[RowResult]) -> Table:
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


def _base_of(rows: Sequence[RowResult]) -> RowResult | None:
    return next((row for row in rows if row.row == BASE), None)


def _figures(row: RowResult, base: RowResult | None, name: str) -> list[str]:
    """Formats our result and its difference from base, then those of the paper."""
    ours, printed = getattr(row, name), getattr(row.printed, name)
    cells = [str(ours), "", f"{printed:.{_DECIMALS[name]}f}", ""]
    if row.row != BASE:
        if base is not None:
            cells[1] = f"{ours.mean - getattr(base, name).mean:+.2f}"
        change_printed = printed - getattr(TABLE3_PRINTED[BASE], name)
        cells[3] = f"{change_printed:+.{_DECIMALS[name]}f}"
    return cells


def parameters_table(configs: Mapping[str, Config]) -> Table:
    """Returns a line per row, including base: its parameter count, ours and the paper's."""
    counts = {row: parameter_count(config.model) for row, config in configs.items()}
    lines = []
    for row, config in configs.items():
        printed = TABLE3_PRINTED[ROWS[row]].millions
        to_base = f"{(counts[row] - counts[BASE]) / 1e6:+.3f}" if row != BASE else ""
        names = row, change(config, configs[BASE])
        lines.append(
            [*names, f"{counts[row]:,}", _millions(counts[row]), to_base, printed or ""]
        )
    return Table(["row", "change", "parameters", "M", "to base", "paper M"], lines)


def _millions(count: int) -> str:
    return f"{count / 1e6:.{1 if count >= 10e6 else 3}f}"


def draw_differences(rows: Sequence[RowResult], path: Path) -> None:
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
    save(figure, path)
