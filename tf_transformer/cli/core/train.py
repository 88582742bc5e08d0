"""`tf-transformer train`: trains a model, or resumes its training."""

import argparse
import logging
import os
import shlex
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.parser import value_of
from tf_transformer.cli.process import must_end
from tf_transformer.cli.terminal import print_report
from tf_transformer.cli.training_options import add_run_settings, config_of, seconds_of
from tf_transformer.config import Config
from tf_transformer.errors import UserError, quoted
from tf_transformer.run import Run
from tf_transformer.tables import MARKDOWN
from tf_transformer.tasks.registry import task_named
from tf_transformer.training.interruption import Budget, Interrupted

if TYPE_CHECKING:  # it imports TensorFlow
    from tf_transformer.training.task import Result

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_run_settings(parser)
    parser.add_argument(
        "--seeds",
        type=_seeds,
        metavar="N,N,...",
        help="train a run with each seed in OUTPUT/seed-N, and print the mean and standard "
        "deviation of their scores",
    )


def command(options: argparse.Namespace) -> int:
    """Trains a Transformer, by default on the built-in English-German corpus.

    With --train it learns from parallel text or, with --task, from trees in Penn brackets or
    from lines of a label, a TAB and a sentence. Run the same command again to resume.
    """
    config = config_of(options)
    output = Path(options.output or f"runs/{config.preset or 'tiny'}")
    if options.seeds:
        return _train_seeds(options, config, output)
    budget = Budget.parse(options.stop_after) if options.stop_after else None
    import_tensorflow_quietly()

    from tf_transformer.api.training import train_and_report
    from tf_transformer.training import devices

    if not devices.is_chief():
        logging.getLogger("tf_transformer").setLevel("ERROR")  # the chief logs for all workers
    try:
        run, result = train_and_report(
            config,
            output,
            budget,
            num_devices=options.devices,
            accept_new_data=options.accept_new_data,
            fixed_vocabulary=any(
                setting.split("=")[0].strip() == "model.vocab_size" for setting in options.set
            ),
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
    from tf_transformer.training.in_turn import DONE, FAILED, STOPPED

    if any(setting.partition("=")[0].strip() == "training.seed" for setting in options.set):
        raise UserError("Give --seeds or --set training.seed, not both.")
    seconds = seconds_of(options.stop_after, "--seeds")
    more = [word for setting in options.set for word in ("--set", setting)]
    more += ["--devices", str(options.devices)] if options.devices is not None else []
    more += ["--traceback"] if options.traceback else []
    more += ["--accept-new-data"] if options.accept_new_data else []
    status, table = train_seeds(config, output, options.seeds, seconds=seconds, more=more)
    if table:
        print_report(table, style=MARKDOWN)
    elif status != FAILED:
        logger.info("run the same command again to resume")
    return DONE if status == STOPPED else status


def _print_next(run: Run, result: "Result") -> None:
    """Logs the run's path and prints commands that use it, unwrapped for pasting."""
    task = task_named(run.config.task)
    logger.info("\nThe run is in %s. Next:", run.path)
    program, path = _program(), str(run.path)
    translate = shlex.join([program, task.command, path])
    print(f"  echo {shlex.quote(result.example)} | {translate}")
    print(f"  {shlex.join([program, 'export', path, '--output', f'exported/{run.path.name}'])}")


def _program() -> str:
    """Returns `tf-transformer` as the user can type it, even if it is not on the PATH."""
    name = "tf-transformer"
    here = Path(sys.executable).with_name(name)
    return name if shutil.which(name) == str(here) else os.path.relpath(here)
