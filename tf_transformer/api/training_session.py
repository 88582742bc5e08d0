"""A training session, from the run directory to the card, and the checks before it."""

import logging
import shutil
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import keras
import tensorflow as tf

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import locked
from tf_transformer.base.output import ProgressBars, is_watched
from tf_transformer.config import Config
from tf_transformer.data.text import corpora
from tf_transformer.quality.doctor import Finding, diagnose, quick_findings
from tf_transformer.reports.run_card import try_to_write_card
from tf_transformer.run import Run
from tf_transformer.run.run import open_for_training
from tf_transformer.run.run_tokenizer import sized
from tf_transformer.training import devices
from tf_transformer.training.sessions import Budget, Stopper, is_chief
from tf_transformer.training.trainer import Result, Trainer
from tf_transformer.translation.task import NO_FUNCTIONS, Functions, TranslationTask

logger = logging.getLogger(__name__)


def train_run(
    config: Config,
    output: Path,
    budget: Budget | None = None,
    *,
    num_devices: int | None = None,
    accept_new_data: bool = False,
    bars: bool = False,
    callbacks: Sequence[keras.callbacks.Callback] = (),
    functions: Functions = NO_FUNCTIONS,
) -> tuple[Run, Result | None]:
    """Trains a run to its end, from its last state if any; logs its scores, writes its card.

    `check_training` has accepted the configuration. The folder is locked until the end. The
    result is None on a worker that is not the chief.

    Raises UserError if training cannot begin or continue, another process trains in `output`,
    or another worker is lost; Interrupted if signals or the budget end the session, after
    everything is saved.
    """
    source = config.training.init_from
    if source and Path(source).resolve() == Path(output).resolve():
        raise UserError(f"{source} cannot begin with its own weights. Give another output.")
    lock = locked(output) if is_chief() else nullcontext()
    with Stopper(budget) as stopper, lock, devices.lost_workers_explained():
        # First, since it clears TensorFlow's caches and would clear a tokenizer created before.
        keras.utils.set_random_seed(config.training.seed)
        if config.training.deterministic:
            tf.config.experimental.enable_op_determinism()
        workers = devices.Workers(devices.make_strategy(num_devices))
        stopper.listen()
        if callbacks and workers.number > 1:
            raise UserError(
                "`callbacks` are for one worker: several might stop at other steps."
            )
        shown = is_watched(notebook=bars)
        with workers.chief_first():
            task = _prepared(config, output, accept_new_data, shown, functions)
        logger.info("device: %s", devices.describe(workers.strategy))
        trainer = Trainer(task.run, task, workers, stopper, int(shown), callbacks)
        result = trainer.train()
        if result:
            for line in result.lines:
                logger.info("%s", line)
            try_to_write_card(trainer.run)  # last, so that no failure withholds the score
    return trainer.run, result


def _prepared(
    config: Config, output: Path, accept_new_data: bool, bars: bool, functions: Functions
) -> TranslationTask:
    """Prepares run directory and data, which only the chief writes, and describes them."""
    chief, config = is_chief(), TranslationTask.settled(sized(config))
    is_new = not (output / "config.json").exists()
    before = {*output.iterdir()} if output.exists() else set()
    if chief:
        run = open_for_training(output, config, accept_new_data, functions.names)
    else:
        run = Run.open(output)
    try:
        with ProgressBars(shown=bars) as progress:
            task = TranslationTask(run, progress, may_encode=chief, functions=functions)
    except UserError:
        for path in {*output.iterdir()} - before if is_new and chief else ():
            # What was refused leaves no run, which would hold these settings.
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        raise
    logger.info("%s", task.describe())
    for finding in quick_findings(task) if chief else ():
        logger.warning("warning  %s", finding)
    return task


def examine(run: Run, test: Sequence[str] = ()) -> list[Finding]:
    """Returns all findings; those on the tokenizer and encoded data only if these exist.

    The run's folder may be empty. `test` are prefixes of text to compare with the training
    text.
    """
    with ProgressBars() as progress:
        task = TranslationTask(run, progress) if run.tokenizer.exists() else None
        data = TranslationTask.effective_data(run)
        for corpus in corpora(test, data):
            corpus.check()
        return diagnose(run.config, data, task, test=test, progress=progress)
