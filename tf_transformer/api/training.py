"""Training a run to its end: opens the run directory, prepares the data, runs the trainer."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import keras
import tensorflow as tf

from tf_transformer.config import Config
from tf_transformer.data.vocabulary import VocabularyTooLarge
from tf_transformer.doctor.checks import quick_findings
from tf_transformer.errors import UserError
from tf_transformer.files import locked
from tf_transformer.progress import ProgressBars, is_watched
from tf_transformer.run import Run
from tf_transformer.run.run import open_for_training
from tf_transformer.studies.run_card import try_to_write_card
from tf_transformer.tasks.registry import check_training, discard_foreign_files, task_named
from tf_transformer.tasks.sequences import SequenceTask
from tf_transformer.tasks.tokenizers import sized
from tf_transformer.training import devices
from tf_transformer.training.sessions import Budget, Stopper
from tf_transformer.training.trainer import Result, Trainer

logger = logging.getLogger(__name__)


@contextmanager
def training_session(output: Path, budget: Budget | None = None) -> Iterator[Stopper]:
    """Locks the run directory for a training session that signals or a budget may end.

    Raises:
        UserError: if another process trains in `output`, or another worker is lost.
        Interrupted: if the session is stopped, after everything is saved.
    """
    lock = locked(output) if devices.is_chief() else nullcontext()
    with Stopper(budget) as stopper, lock, devices.lost_workers_explained():
        yield stopper


def train_and_report(
    config: Config,
    output: Path,
    budget: Budget | None = None,
    *,
    num_devices: int | None = None,
    accept_new_data: bool = False,
    fixed_vocabulary: bool = False,
    bars: bool = False,
) -> tuple[Run, Result | None]:
    """Trains a run to its end in a `training_session`, logs its scores and writes its card.

    Args:
        config: the configuration, which is checked first.
        output: the run directory.
        budget: limit of this session.
        num_devices: see `devices.make_strategy`.
        accept_new_data: resume although the training text has changed.
        fixed_vocabulary: do not lower the vocabulary size for the built-in corpus.
        bars: show progress bars in a notebook too.

    Returns:
        See `train_run`.

    Raises:
        UserError: if training cannot begin or continue.
        Interrupted: if the session is stopped, after everything is saved.
    """
    check_training(config)
    source = config.training.init_from
    if source and Path(source).resolve() == Path(output).resolve():
        raise UserError(f"{source} cannot begin with its own weights. Give another output.")
    data = config.data
    built_in = config.task == "translation" and not (data.train or data.tokenizer)
    with training_session(output, budget) as stopper:
        run, result = train_run(
            config,
            output,
            stopper=stopper,
            num_devices=num_devices,
            accept_new_data=accept_new_data,
            lower_vocabulary=built_in and not fixed_vocabulary,
            bars=is_watched(notebook=bars),
        )
        if result:
            for line in result.lines():
                logger.info("%s", line)
            try_to_write_card(run)  # last, so that no failure withholds the score
    return run, result


def train_run(
    config: Config,
    output: Path,
    *,
    stopper: Stopper,
    num_devices: int | None = None,
    accept_new_data: bool = False,
    lower_vocabulary: bool = False,
    bars: bool = False,
) -> tuple[Run, Result | None]:
    """Trains a run to its end, from its last checkpoint, if any.

    Args:
        config: the configuration.
        output: the run directory.
        stopper: from `training_session`.
        num_devices: see `devices.make_strategy`.
        accept_new_data: resume although the training text has changed.
        lower_vocabulary: take fewer pieces than configured if the text does not yield enough.
        bars: show progress bars.

    Returns:
        The run, and its result (None on a worker that is not the chief).
    """
    # First, since it clears TensorFlow's caches and would clear a tokenizer created before.
    keras.utils.set_random_seed(config.training.seed)
    if config.training.deterministic:
        tf.config.experimental.enable_op_determinism()
    strategy = devices.make_strategy(num_devices)
    stopper.listen()
    workers = devices.Workers(strategy)
    with workers.chief_first():
        run, task = _prepare(config, output, accept_new_data, lower_vocabulary, bars)
        if workers.is_chief:
            for finding in quick_findings(task):
                logger.warning("warning  %s", finding)
    logger.info("device: %s", devices.describe(strategy))
    trainer = Trainer(run, task, workers, stopper, verbose=int(bars))
    return run, trainer.train()


def _prepare(
    config: Config, output: Path, accept_new_data: bool, lower_vocabulary: bool, bars: bool
) -> tuple[Run, SequenceTask]:
    """Opens the run directory and prepares the task's data, which only the chief writes."""
    is_chief = devices.is_chief()
    config = sized(config)
    if lower_vocabulary and (trained := _trained_vocab_size(output)):
        config = _lowered(config, trained, "this run has no more")
    run = open_for_training(output, config, accept_new_data) if is_chief else Run.open(output)
    if is_chief:
        discard_foreign_files(run)
    try:
        task = _task_of(run, is_chief, bars)
    except VocabularyTooLarge as error:
        if not lower_vocabulary:
            raise
        config = _lowered(config, error.largest, "the built-in corpus has no more")
        run = open_for_training(output, config, accept_new_data)
        task = _task_of(run, is_chief, bars)
    logger.info("%s", task.describe())
    return run, task


def _task_of(run: Run, is_chief: bool, bars: bool) -> SequenceTask:
    task_class = task_named(run.config.task).task_class()
    with ProgressBars(shown=bars) as progress:
        return task_class(run, progress, may_encode=is_chief)


def _trained_vocab_size(output: Path) -> int | None:
    """Returns the vocabulary size of a run whose training has begun."""
    if not (output / "config.json").exists():
        return None
    run = Run.open(output)
    return run.config.model.vocab_size if run.checkpoints.state_steps() else None


def _lowered(config: Config, size: int, why: str) -> Config:
    """Limits the vocabulary to `size` pieces, and logs the change."""
    before = config.model.vocab_size
    if before <= size:
        return config
    message = "vocabulary: %s pieces instead of the preset's %s: %s"
    logger.info(message, f"{size:,}", f"{before:,}", why)
    return config.replace({"model.vocab_size": size})
