"""A training session, from the run directory to the card, and the checks before it."""

import functools
import logging
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
from tf_transformer.run.run import holds_other_files, open_for_training
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
        shown = is_watched(notebook=bars)
        trainer = _trainer(
            config, output, stopper, num_devices, accept_new_data, shown, callbacks, functions
        )
        result = trainer.train()
        if result:
            for line in result.lines:
                logger.info("%s", line)
            try_to_write_card(trainer.run)  # last, so that no failure withholds the score
    return trainer.run, result


def _trainer(
    config: Config,
    output: Path,
    stopper: Stopper,
    num_devices: int | None,
    accept_new_data: bool,
    bars: bool,
    callbacks: Sequence[keras.callbacks.Callback],
    functions: Functions,
) -> Trainer:
    """Prepares devices, run directory and data."""
    # First, since it clears TensorFlow's caches and would clear a tokenizer created before.
    keras.utils.set_random_seed(config.training.seed)
    if config.training.deterministic:
        tf.config.experimental.enable_op_determinism()
    strategy = devices.make_strategy(num_devices)
    stopper.listen()
    workers = devices.Workers(strategy)
    if callbacks and workers.number > 1:
        raise UserError("`callbacks` are for one worker: several might stop at other steps.")
    with workers.chief_first():
        chief, config = is_chief(), TranslationTask.settled(sized(config))
        is_new, names = not (output / "config.json").exists(), ("config.json", "versions.json")
        open_it = functools.partial(open_for_training, functions=functions.names)
        run = open_it(output, config, accept_new_data) if chief else Run.open(output)
        try:
            with ProgressBars(shown=bars) as progress:  # only the chief writes data
                task = TranslationTask(run, progress, may_encode=chief, functions=functions)
        except UserError:
            for name in names if is_new and not holds_other_files(output, *names) else ():
                (output / name).unlink()  # what was refused leaves no run
            raise
        logger.info("%s", task.describe())
        if workers.is_chief:
            for finding in quick_findings(task):
                logger.warning("warning  %s", finding)
    logger.info("device: %s", devices.describe(strategy))
    return Trainer(run, task, workers, stopper, int(bars), callbacks)


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
