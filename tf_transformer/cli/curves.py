"""The command `curves`."""

import argparse
import logging
from collections.abc import Sequence

from tf_transformer.base.errors import UserError
from tf_transformer.cli.options import picture
from tf_transformer.plots import LearningCurve, draw_curves, short_names
from tf_transformer.run import Run
from tf_transformer.run.records import comparable

logger = logging.getLogger(__name__)

_BLOCKS = "▁▂▃▄▅▆▇█"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `curves`."""
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    text = "draw the curves as .png, .svg or .pdf"
    parser.add_argument("--output", metavar="FILE", help=text)


def run(options: argparse.Namespace) -> None:
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
        highest, step = curve.best
        logger.info(
            f"{curve.label}  dev {curve.score_name}  {sparkline(curve.scores)}  "
            f"last {curve.scores[-1]:.4g}, highest {highest:.4g} at step {step:,}"
        )
    if output:
        logger.info("%s", output)


def _curve(run: Run, label: str) -> LearningCurve:
    score, old = "valid_bleu", "valid_old_bleu"
    records = run.history("perplexity", score)
    has_old = all(old in record for record in records)
    # The first of the highest on this dev set, like the trainer's choice.
    best = max(comparable(records), key=lambda record: record[score])
    return LearningCurve(
        label=label,
        steps=[record["step"] for record in records],
        train=[record["perplexity"] for record in records],
        dev=[record["valid_perplexity"] for record in records],
        scores=[record[score] for record in records],
        score_name="BLEU",
        best=(best[score], best["step"]),
        old_scores=[record[old] for record in records] if has_old else (),
    )


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
