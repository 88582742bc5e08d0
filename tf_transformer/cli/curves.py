"""`tf-transformer curves RUN...`: the learning curves of one or more runs as a picture."""

import argparse
import logging
from pathlib import Path

from tf_transformer.cli.options import picture
from tf_transformer.errors import UserError
from tf_transformer.files import replacing
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
    _draw(runs, output)
    logger.info("%s", output)


def _draw(runs: list[Run], output: Path) -> None:
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError("curves needs matplotlib: pip install matplotlib.") from None
    figure = Figure(figsize=(10, 4), layout="constrained")
    perplexity, score = figure.subplots(1, 2)
    labels = {}  # of the dev scores: one, unless the runs are of different tasks
    for index, run in enumerate(runs):
        records, task = run.history(), task_named(run.config.task)
        labels[task.scores[task.main_score]] = None
        steps = [record["step"] for record in records]
        color = f"C{index}"
        for key, style, label in (
            ("perplexity", ":", "train, with dropout"),
            ("valid_perplexity", "-", "dev"),
        ):
            values = [record[key] for record in records]
            perplexity.plot(steps, values, style, color=color, label=f"{run.path}, {label}")
        scores = [record[f"valid_{task.main_score}"] for record in records]
        score.plot(steps, scores, color=color, label=f"{run.path}, highest {max(scores):.4g}")
    perplexity.set(xlabel="step", ylabel="perplexity per token", yscale="log")
    score.set(xlabel="step", ylabel=f"dev {' or '.join(labels)}")
    for axes in (perplexity, score):
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    with replacing(output) as temporary:
        figure.savefig(temporary, dpi=120, format=output.suffix[1:])
