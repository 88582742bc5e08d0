"""`python train.py`: trains a model, or goes on training it."""

import argparse
import dataclasses
import logging
import os
import shlex
import shutil
import sys
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.parser import int_from, value_of
from tf_transformer.cli.process import must_end
from tf_transformer.config import Config
from tf_transformer.config.presets import PRESETS, preset
from tf_transformer.config.recipes import RECIPES, recipe
from tf_transformer.files import locked
from tf_transformer.tasks.classification.transfer import take_over
from tf_transformer.tasks.record import Summary
from tf_transformer.tasks.registry import TASKS, check_config, task_named
from tf_transformer.training.interruption import Budget, Interrupted, Stopper

logger = logging.getLogger(__name__)


DESCRIPTION = (
    "Trains a Transformer on parallel text or, by --task, on trees in Penn brackets or on "
    "sentences with a label, a TAB between; without --train, on the built-in English-German "
    "corpus. Run the same command again to go on."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--task", choices=TASKS, help="what to learn (default: the model's)")
    parser.add_argument(
        "--model", default="tiny", metavar="NAME", help=f"one of {', '.join(PRESETS)}"
    )
    parser.add_argument(
        "--recipe",
        metavar="NAME",
        help=f"of training, over any model: {', '.join(RECIPES)}; other options come after it",
    )
    parser.add_argument(
        "--encoder-from",
        metavar="RUN",
        help="of --task classification: begin with the encoder and the tokenizer of a run",
    )
    parser.add_argument("--output", metavar="DIR", help="run directory (default: runs/NAME)")
    parser.add_argument(
        "--accept-new-data",
        action="store_true",
        help="go on with a run although the content of its training text has changed",
    )
    add_training_options(parser)


def add_training_options(parser: argparse.ArgumentParser) -> None:
    """Data, batch, devices, end of the session and settings."""
    parser.add_argument(
        "--train",
        action="append",
        metavar="PREFIX",
        help="training text PREFIX.LANG or PREFIX.LANG.gz, of other tasks a file of trees or "
        "labelled sentences; may be given several times",
    )
    parser.add_argument("--valid", action="append", metavar="PREFIX", help="dev text, likewise")
    parser.add_argument("--source", metavar="LANG", help="language to translate from: en")
    parser.add_argument("--target", metavar="LANG", help="language to translate to: de")
    parser.add_argument(
        "--batch-tokens",
        type=value_of("training.batch_tokens"),
        metavar="N",
        help="tokens of a side in one update, over all devices (paper: 25000)",
    )
    parser.add_argument(
        "--max-tokens-per-device",
        type=value_of("training.max_tokens_per_device"),
        metavar="N",
        help="computed at once on a device; more are computed in parts, with the same result "
        "(default: as many as its memory holds; 0: all)",
    )
    parser.add_argument(
        "--devices",
        type=int_from(1, 128),
        metavar="N",
        help="how many (default: all GPUs, or the CPU)",
    )
    parser.add_argument(
        "--stop-after",
        metavar="TIME",
        help="end this session after 2h, 90m, 45s or '500 steps', saved as on Ctrl-C",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="SECTION.FIELD=VALUE",
        help="any setting of the configuration: --set model.dropout=0.3",
    )


def configure(options: argparse.Namespace) -> Config:
    """The preset with the recipe, if one is given, then the command line's own values.

    With --encoder-from the model and the tokenizer of that run come before these values.
    """
    config = _with_task(preset(options.model), options.task)
    if options.recipe:
        config = recipe(options.recipe).apply(config)
    given = given_values(options)
    configured = config.replace(given).override(options.set)
    if source := configured.training.encoder_from:
        return take_over(config, source).replace(given).override(options.set)
    return configured


def given_values(options: argparse.Namespace) -> dict[str, Any]:
    """What the options other than --set say, as `{"section.field": value}`."""
    given = {
        "data": ("train", "valid", "source", "target"),
        "training": ("batch_tokens", "max_tokens_per_device", "encoder_from"),
    }
    return {
        f"{section}.{name}": getattr(options, name)
        for section, names in given.items()
        for name in names
        if getattr(options, name, None) is not None
    }


def _with_task(config: Config, name: str | None) -> Config:
    """The configuration for another task than its preset's, with a score that this one has."""
    if name is None or name == config.task:
        return config
    best_by = {"training.best_by": task_named(name).main_score}
    return dataclasses.replace(config, task=name).replace(best_by)


@dataclass(frozen=True)
class Allowed:
    """Differences that are announced instead of refused.

    Attributes:
        new_data: other training text than the run has been trained on.
        smaller_vocabulary: fewer pieces than configured, where the text has no more.
    """

    new_data: bool = False
    smaller_vocabulary: bool = False


def command(options: argparse.Namespace) -> int:
    config = configure(options)
    output = Path(options.output or f"runs/{options.model}")
    budget = Budget.parse(options.stop_after) if options.stop_after else None
    import_tensorflow_quietly()

    from tf_transformer.training import devices
    from tf_transformer.training.workers import lost_workers_explained

    check_config(config)
    if not devices.is_chief():
        logging.getLogger("tf_transformer").setLevel("ERROR")  # the chief speaks for all
    alone = locked(output) if devices.is_chief() else nullcontext()
    try:
        with Stopper(budget) as stopper, alone, lost_workers_explained():
            allowed = Allowed(options.accept_new_data, _may_lower_vocabulary(config, options))
            run, result = train_run(config, output, options.devices, stopper, allowed)
            if result:
                _report(run, result)
    except Interrupted as stop:
        logger.info("%s; the same command goes on from here", stop)
        must_end(stop.status)
        return stop.status
    must_end(0)
    return 0


def _may_lower_vocabulary(config: Config, options: argparse.Namespace) -> bool:
    """Whether its size is the preset's own, and the text is the built-in corpus."""
    data = config.data
    explicit = any(each.split("=")[0].strip() == "model.vocab_size" for each in options.set)
    built_in = config.task == "translation" and not (data.train or data.tokenizer)
    return built_in and not explicit


def train_run(
    config: Config,
    output: Path,
    num_devices: int | None,
    stopper: Stopper,
    allowed: Allowed = Allowed(),  # noqa: B008 (it is frozen)
):
    """Trains to the end, or goes on to it.

    Args:
        config: of the run.
        output: its directory.
        num_devices: see `devices.make_strategy`.
        stopper: ends training early.
        allowed: what may differ from the run or the configuration.

    Returns:
        The run, and the task's result (None of a worker that is not the chief).
    """
    import keras
    import tensorflow as tf

    from tf_transformer.training import devices
    from tf_transformer.training.trainer import Trainer
    from tf_transformer.training.workers import Workers

    # First of all: it clears TensorFlow's caches, and with them a tokenizer made before.
    keras.utils.set_random_seed(config.training.seed)
    if config.training.deterministic:
        tf.config.experimental.enable_op_determinism()
    strategy = devices.make_strategy(num_devices)
    stopper.listen()
    workers = Workers(strategy)
    with workers.chief_first():
        run, task = _prepare(config, output, workers.is_chief, allowed)
        if workers.is_chief:
            _warn(task, strategy.num_replicas_in_sync, config)
    logger.info("device: %s", devices.describe(strategy))
    trainer = Trainer(run, task, workers, stopper, verbose=int(sys.stderr.isatty()))
    return run, trainer.train()


def _prepare(config: Config, output: Path, is_chief: bool, allowed: Allowed):
    """The run directory and the task with its data, which only the chief writes."""
    from tf_transformer.data.tokenizer import Tokenizer, VocabularyTooLarge
    from tf_transformer.run import Run
    from tf_transformer.run.resume import open_for_training

    if config.data.tokenizer:
        size = Tokenizer(Path(config.data.tokenizer)).vocab_size
        config = config.replace({"model.vocab_size": size})
    if allowed.smaller_vocabulary and (size := _trained_vocab_size(output)):
        config = _lowered(config, size, "this run has no more")
    run = open_for_training(output, config, allowed.new_data) if is_chief else Run.open(output)
    try:
        task = _task_of(run, is_chief)
    except VocabularyTooLarge as error:
        if not allowed.smaller_vocabulary:
            raise
        config = _lowered(config, error.largest, "the built-in corpus has no more")
        run = open_for_training(output, config, allowed.new_data)
        task = _task_of(run, is_chief)
    logger.info("%s", task.describe())
    return run, task


def _task_of(run, is_chief: bool):
    from tf_transformer.cli.progress import Progress

    with Progress() as progress:
        record = task_named(run.config.task).record()
        return record.prepare(run, progress, may_encode=is_chief)


def _trained_vocab_size(output: Path) -> int | None:
    """That of a run whose training has begun."""
    from tf_transformer.run import Run

    if not (output / "config.json").exists():
        return None
    run = Run.open(output)
    return run.config.model.vocab_size if run.checkpoints.state_steps() else None


def _lowered(config: Config, size: int, why: str) -> Config:
    """The configuration with at most `size` pieces, which is said."""
    before = config.model.vocab_size
    if before <= size:
        return config
    line = "vocabulary: %s pieces instead of the preset's %s: %s"
    logger.info(line, f"{size:,}", f"{before:,}", why)
    return config.replace({"model.vocab_size": size})


def _warn(task, replicas: int, config: Config) -> None:
    from tf_transformer.doctor.diagnosis import quick_findings

    prose = task_named(config.task).record().prose
    for finding in quick_findings(task, replicas, prose=prose):
        logger.warning("warning  %s", finding)


def _report(run, result: Summary) -> None:
    from tf_transformer.studies.run_card import try_to_write_card

    for line in result.lines():
        logger.info("%s", line)
    task = task_named(run.config.task)
    logger.info("\nThe run is in %s. Next:", run.path)
    program = f"{_typed('tf-transformer')} {task.command} {run.path}"
    logger.info("  echo %s | %s", shlex.quote(result.example), program)
    if task.record().exports:
        exported = f"--output exported/{run.path.name}"
        logger.info("  %s export.py %s %s", _typed("python"), run.path, exported)
    try_to_write_card(run)  # last: nothing that it needs may keep the score back


def _typed(program: str) -> str:
    """How to type a program of this environment, which need not be activated."""
    here = Path(sys.executable).with_name(program)
    return program if shutil.which(program) == str(here) else os.path.relpath(here)
