"""The command `train`."""

import argparse
import logging
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.output import MARKDOWN
from tf_transformer.cli.console import import_tensorflow_quietly, print_report
from tf_transformer.cli.options import (
    add_run_settings,
    config_of,
    options_of_rows,
    require_writable,
    seconds_of,
    sets,
)
from tf_transformer.cli.parser import value_of
from tf_transformer.cli.process import must_end
from tf_transformer.config import Config
from tf_transformer.run import Run, require_created_by
from tf_transformer.training.sessions import Budget, Interrupted, is_chief
from tf_transformer.translation.checks import check_training

if TYPE_CHECKING:  # it imports TensorFlow
    from tf_transformer.training.trainer import Result

logger = logging.getLogger(__name__)


def add_train(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `train`."""
    add_run_settings(parser)
    text = "train a run with each seed in OUTPUT/seed-N, and print the mean and standard "
    text += "deviation of their scores"
    parser.add_argument("--seeds", type=_seeds, metavar="N,N,...", help=text)


def run_train(options: argparse.Namespace) -> int:
    """Trains a Transformer, by default on the built-in English-German corpus.

    With --train it learns from parallel text. Run the same command again to resume.
    """
    config = config_of(options)
    output = Path(options.output or f"runs/{config.preset or 'tiny'}")
    require_writable("--output", output, folder=True)
    if options.seeds:
        return _train_seeds(options, config, output)
    budget = Budget.parse(options.stop_after) if options.stop_after else None
    require_created_by("tf-transformer train", output)
    if not is_chief():
        logging.getLogger("tf_transformer").setLevel("ERROR")  # the chief logs for all workers
    check_training(config)
    import_tensorflow_quietly()

    from tf_transformer.api.training_session import train_run

    try:
        run, result = train_run(
            config,
            output,
            budget,
            num_devices=options.devices,
            accept_new_data=options.accept_new_data,
        )
        if result:
            _print_next(run, result)
    except Interrupted as stop:
        logger.info("%s; run the same command again to resume", stop)
        must_end(stop.status)
        return stop.status
    must_end(0)
    return 0


def _seeds(text: str) -> list[int]:
    """Reads a list such as "1,2,3"; an argument `type`."""
    seeds = [value_of("training.seed")(seed) for seed in text.split(",")]
    if len(set(seeds)) < max(2, len(seeds)):
        raise argparse.ArgumentTypeError(
            f"must be different seeds such as 1,2,3. Received: {quoted(text)}."
        )
    return seeds


def _train_seeds(options: argparse.Namespace, config: Config, output: Path) -> int:
    from tf_transformer.api.seeds import train_seeds
    from tf_transformer.training.sessions import DONE, FAILED, STOPPED

    if sets(options, "training.seed"):
        raise UserError("Give --seeds or --set training.seed, not both.")
    seconds = seconds_of(options.stop_after, "--seeds")
    more = [word for setting in options.set for word in ("--set", setting)]
    more += options_of_rows(options) + ["--accept-new-data"] * options.accept_new_data
    status, table = train_seeds(config, output, options.seeds, seconds=seconds, more=more)
    if table:
        print_report(table, style=MARKDOWN)
    elif status != FAILED:
        logger.info("run the same command again to resume")
    return DONE if status == STOPPED else status


def _print_next(run: Run, result: "Result") -> None:
    """Logs the run's path and prints commands that use it, unwrapped for pasting."""
    logger.info("\nThe run is in %s. Next:", run.path)
    program, path = _program(), str(run.path)
    use = shlex.join([program, "translate", path])
    print(f"  echo {shlex.quote(result.example)} | {use}")
    print(f"  {shlex.join([program, 'export', path, '--output', f'exported/{run.path.name}'])}")


def _program() -> str:
    """Returns `tf-transformer` as the user can type it, even if it is not on the PATH."""
    name = "tf-transformer"
    here = Path(sys.executable).with_name(name)
    return name if shutil.which(name) == str(here) else os.path.relpath(here)
