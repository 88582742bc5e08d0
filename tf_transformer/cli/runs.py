"""Commands for what runs hold: `curves`, `card` and `average`."""

import argparse
import logging
from collections.abc import Sequence
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.base.output import MARKDOWN, Table
from tf_transformer.cli.console import print_report
from tf_transformer.cli.options import MODEL_HELP, RUN_HELP, picture, refuse_unsuited
from tf_transformer.cli.parser import float_from, integer
from tf_transformer.config import Config
from tf_transformer.config.config import flattened
from tf_transformer.export.card import checked_card
from tf_transformer.export.versions import find_export
from tf_transformer.loading.load import of_export
from tf_transformer.plots import LearningCurve, draw_curves, short_names
from tf_transformer.reports.cost import SUSTAINED_TFLOPS
from tf_transformer.run import Run
from tf_transformer.run.records import comparable, rank_of

logger = logging.getLogger(__name__)

# --- curves ----------------------------------------------------------------------------------

_BLOCKS = "▁▂▃▄▅▆▇█"


def add_curves(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `curves`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    text = "draw the curves as .png, .svg or .pdf"
    parser.add_argument("--output", metavar="FILE", help=text)


def run_curves(options: argparse.Namespace) -> None:
    """Prints the dev scores of runs, one run per line.

    With --output, also draws perplexity and dev score against the step.
    """
    output = picture(options.output) if options.output else None
    runs = [Run.open(path) for path in options.runs]
    for run in runs:
        if not run.history():
            raise UserError(f"The run {run.path} has no evaluations yet.")
    labels = short_names([run.path for run in runs])
    curves = [_curve(run, label) for run, label in zip(runs, labels, strict=True)]
    if output:
        draw_curves(curves, output)
    for curve in curves:
        scores, best = curve.column("valid_bleu"), curve.best
        logger.info(
            f"{curve.label}  dev BLEU  {sparkline(scores)}  last {scores[-1]:.4g}, "
            f"highest {best['valid_bleu']:.4g} at step {best['step']:,}"
        )
    if output:
        logger.info("%s", output)


def _curve(run: Run, label: str) -> LearningCurve:
    records = run.history("perplexity", "valid_bleu")
    # The first of the highest on this dev set, like the trainer's choice.
    best = max(comparable(records), key=lambda record: record["valid_bleu"])
    return LearningCurve(label, records, best)


def sparkline(values: Sequence[float], width: int = 40) -> str:
    """Draws numbers as a line of blocks, scaled from the smallest number to the largest.

    There is at least one. Of more than `width`, it draws a sample that includes the last.
    """
    number = min(len(values), width)
    shown = [values[(index + 1) * len(values) // number - 1] for index in range(number)]
    low, high = min(shown), max(shown)
    if low == high:
        return _BLOCKS[0] * number
    return "".join(_BLOCKS[round(7 * (value - low) / (high - low))] for value in shown)


# --- card ------------------------------------------------------------------------------------


def add_card(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `card`."""
    parser.add_argument("run", metavar="RUN", help=MODEL_HELP)
    rate = parser.add_mutually_exclusive_group()
    text = "also estimate FLOPs as time x devices x this sustained rate of a device, in TFLOP/s"
    rate.add_argument("--sustained-tflops", type=float_from(1e-6, 1e6), metavar="X", help=text)
    text = "also estimate FLOPs at the rate that the paper assumes for this GPU"
    rate.add_argument("--gpu", choices=[*SUSTAINED_TFLOPS], help=text)


def run_card(options: argparse.Namespace) -> None:
    """Writes RUN/card.md and prints it, even during training.

    The card describes the model, its departures from the paper, data with hashes, dev scores
    with their signature, the cost beside the paper's Table 2, and versions. Of an export, it
    prints what the card in its folder says, without settings that are the defaults.
    """
    if export := find_export(Path(options.run)):
        refuse_unsuited(options, of_export(export))
        usual, card = Config().flat(), checked_card(export)
        entries = flattened(card | {"config": flattened(card.get("config") or {})}).items()
        rows = [(k, v) for k, v in entries if v != usual.get(k.removeprefix("config."), "")]
        print_report(Table(["", str(export)], rows), style=MARKDOWN)
        return

    from tf_transformer.reports.run_card import write_run_card

    run = Run.open(options.run)
    rate = SUSTAINED_TFLOPS[options.gpu] if options.gpu else options.sustained_tflops
    print_report(*write_run_card(run, rate), style=MARKDOWN)


# --- average ---------------------------------------------------------------------------------


def add_average(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `average`."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    which = parser.add_mutually_exclusive_group()
    text = "average the newest N (default: 5, or all if fewer are kept)"
    which.add_argument("--last", type=integer, metavar="N", help=text)
    text = "average the N best by training.best_by among those kept"
    which.add_argument("--best", type=integer, metavar="N", help=text)


def run_average(options: argparse.Namespace) -> None:
    """Averages the weights of the last or the best checkpoints (paper 6.1).

    Writes average.npz, which other commands use with --checkpoint average.
    """
    from tf_transformer.run.checkpoints import average_checkpoints

    run = Run.open(options.run)
    checkpoints, by_score = run.checkpoints, options.best is not None
    kept = _best_first(run) if by_score else checkpoints.steps()[::-1]
    if not checkpoints.steps():
        raise UserError(
            f"{run.path} has no checkpoints to average. Expected the weights of steps, as "
            "training writes them."
        )
    number = options.best if by_score else options.last
    number = min(5, len(kept)) if number is None else number
    if not 1 <= number <= len(kept):
        scored = ", with a score on its latest dev set" if by_score else ""
        raise UserError(
            f"The number of checkpoints must be between 1 and {len(kept)}, as many as "
            f"{run.path} has kept (see training.keep_last){scored}. Received: {number}."
        )
    steps = sorted(kept[:number])
    files = [checkpoints.step_path(step) for step in steps]
    used = average_checkpoints(files, checkpoints.average)
    names = ", ".join(f"{step:,}" for step in steps if checkpoints.step_path(step) in used)
    logger.info("%s: mean of %d checkpoints, steps %s", checkpoints.average, len(used), names)


def _best_first(run: Run) -> list[int]:
    """Lists the steps with weights and a comparable score, best first."""
    kept = set(run.checkpoints.steps())
    records = [record for record in comparable(run.history()) if record["step"] in kept]
    by = run.config.training.best_by
    records.sort(key=lambda record: rank_of(record, by), reverse=True)
    return [record["step"] for record in records]
