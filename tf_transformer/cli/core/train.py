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
from tf_transformer.cli.process import must_end
from tf_transformer.cli.training_options import add_run_settings, config_of
from tf_transformer.config import Config
from tf_transformer.run import Run
from tf_transformer.studies.run_card import try_to_write_card
from tf_transformer.tasks.registry import check_config, task_named
from tf_transformer.training.interruption import Budget, Interrupted

if TYPE_CHECKING:  # it imports TensorFlow
    from tf_transformer.training.task import Result

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add_run_settings(parser)


def command(options: argparse.Namespace) -> int:
    """Trains a Transformer, by default on the built-in English-German corpus.

    With --train it learns from parallel text or, with --task, from trees in Penn brackets or
    from sentences with a label, separated by a TAB. Run the same command again to resume.
    """
    config = config_of(options)
    output = Path(options.output or f"runs/{options.model or 'tiny'}")
    budget = Budget.parse(options.stop_after) if options.stop_after else None
    import_tensorflow_quietly()

    from tf_transformer.api.training import train_run, training_session
    from tf_transformer.training import devices

    check_config(config)
    if not devices.is_chief():
        logging.getLogger("tf_transformer").setLevel("ERROR")  # the chief speaks for all
    try:
        with training_session(output, budget) as stopper:
            run, result = train_run(
                config,
                output,
                stopper=stopper,
                num_devices=options.devices,
                accept_new_data=options.accept_new_data,
                lower_vocabulary=_may_lower_vocabulary(config, options.set),
            )
            if result:
                _report(run, result)
    except Interrupted as stop:
        logger.info("%s; the same command goes on from here", stop)
        must_end(stop.status)
        return stop.status
    must_end(0)
    return 0


def _may_lower_vocabulary(config: Config, overrides: list[str]) -> bool:
    """True for the built-in corpus, unless the size is explicit."""
    data = config.data
    explicit = any(each.split("=")[0].strip() == "model.vocab_size" for each in overrides)
    built_in = config.task == "translation" and not (data.train or data.tokenizer)
    return built_in and not explicit


def _report(run: Run, result: "Result") -> None:
    for line in result.lines():
        logger.info("%s", line)
    task = task_named(run.config.task)
    logger.info("\nThe run is in %s. Next:", run.path)
    program = _program()
    example = shlex.quote(result.example)
    logger.info("  echo %s | %s %s %s", example, program, task.command, run.path)
    if task.record().exports:
        exported = f"--output exported/{run.path.name}"
        logger.info("  %s export %s %s", program, run.path, exported)
    try_to_write_card(run)  # last: nothing that it needs may keep the score back


def _program() -> str:
    """Returns `tf-transformer` as the user can type it, even without its environment."""
    name = "tf-transformer"
    here = Path(sys.executable).with_name(name)
    return name if shutil.which(name) == str(here) else os.path.relpath(here)
