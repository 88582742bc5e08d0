"""`tf-transformer curves RUN...`: the learning curves of one or more runs as a picture."""

import argparse
import logging

from tf_transformer.cli.options import picture
from tf_transformer.errors import UserError
from tf_transformer.plots.curves import LearningCurve, draw_curves
from tf_transformer.run import Run
from tf_transformer.tasks.registry import task_named

logger = logging.getLogger(__name__)

DESCRIPTION = "Draws perplexity and dev score against the step, from metrics.jsonl."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", nargs="+", metavar="RUN", help="run directories")
    parser.add_argument("--output", required=True, metavar="FILE", help="a .png or .svg")


def command(options: argparse.Namespace) -> None:
    output = picture(options.output)
    runs = [Run.open(path) for path in options.runs]
    for run in runs:
        if not run.history():
            raise UserError(f"The run {run.path} has no evaluations yet.")
    draw_curves([_curve(run) for run in runs], output)
    logger.info("%s", output)


def _curve(run: Run) -> LearningCurve:
    records, task = run.history(), task_named(run.config.task)
    return LearningCurve(
        label=str(run.path),
        steps=[record["step"] for record in records],
        train=[record["perplexity"] for record in records],
        dev=[record["valid_perplexity"] for record in records],
        scores=[record[f"valid_{task.main_score}"] for record in records],
        score_name=task.scores[task.main_score],
    )
