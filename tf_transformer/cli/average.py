"""The command `average`."""

import argparse
import logging

from tf_transformer.base.errors import UserError
from tf_transformer.cli.options import RUN_HELP
from tf_transformer.cli.parser import integer
from tf_transformer.run import Run
from tf_transformer.run.records import comparable, rank_of

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `average`."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    which = parser.add_mutually_exclusive_group()
    text = "average the newest N (default: 5, or all if fewer are kept)"
    which.add_argument("--last", type=integer, metavar="N", help=text)
    text = "average the N best by training.best_by among those kept"
    which.add_argument("--best", type=integer, metavar="N", help=text)


def run(options: argparse.Namespace) -> None:
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
