"""`tf-transformer average RUN`: the mean weights of several checkpoints."""

import argparse
import logging

from tf_transformer.cli.options import RUN_HELP, open_run
from tf_transformer.cli.parser import integer
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import average_checkpoints
from tf_transformer.run.records import comparable, score_of

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    which = parser.add_mutually_exclusive_group()
    text = "average the newest N (default: 5, or all if fewer are kept)"
    which.add_argument("--last", type=integer, metavar="N", help=text)
    text = "average the N best by training.best_by among those kept"
    which.add_argument("--best", type=integer, metavar="N", help=text)


def command(options: argparse.Namespace) -> None:
    """Averages the weights of the last or the best checkpoints (paper 6.1).

    Writes average.npz, which other commands use with --checkpoint average.
    """
    run = open_run(options.run, None)
    by_score = options.best is not None
    kept = _best_first(run) if by_score else run.checkpoints.steps()
    if not run.checkpoints.steps():
        raise UserError(
            f"{run.path} has no checkpoints to average. Expected the weights of steps, as "
            "training writes them."
        )
    numbers = [number for number in (options.best, options.last) if number is not None]
    number = numbers[0] if numbers else min(5, len(kept))
    if not 1 <= number <= len(kept):
        scored = ", with a score on its latest dev set" if by_score else ""
        raise UserError(
            f"The number of checkpoints must be between 1 and {len(kept)}, as many as "
            f"{run.path} has kept (see training.keep_last){scored}. Received: {number}."
        )
    steps = sorted(kept[:number] if by_score else kept[-number:])
    used = average_checkpoints(
        [run.checkpoints.step_path(step) for step in steps], run.checkpoints.average
    )
    names = ", ".join(f"{step:,}" for step in steps if run.checkpoints.step_path(step) in used)
    logger.info(
        "%s: mean of %d checkpoints, steps %s", run.checkpoints.average, len(used), names
    )


def _best_first(run: Run) -> list[int]:
    """Lists the steps with weights and a comparable score, best first."""
    kept = set(run.checkpoints.steps())
    records = [record for record in comparable(run.history()) if record["step"] in kept]
    by = run.config.training.best_by
    records.sort(key=lambda record: score_of(record, by), reverse=True)
    return [record["step"] for record in records]
