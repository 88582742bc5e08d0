"""The tasks by name, as given to `--task` and stored as `task` in a run's config.json."""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tf_transformer.config import Config
from tf_transformer.errors import UserError, quoted
from tf_transformer.run import Run
from tf_transformer.tasks.classification.labelled import LABELS_FILE, read_labels
from tf_transformer.tasks.parsing.lexicon import LEXICON_FILE
from tf_transformer.tasks.transfer import check_source

if TYPE_CHECKING:  # it imports TensorFlow
    from tf_transformer.tasks.sequences import SequenceTask


@dataclass(frozen=True)
class Entry:
    """Description of a task that does not need TensorFlow.

    Attributes:
        name: its name, and that of its package in `tasks`.
        scores: names for `training.best_by`, with their display labels; the first is the main
            score.
        command: command of `tf-transformer` that uses a trained run.
        search: settings of the search that a preset of another task gets.
        languages: whether its data is text in two languages; otherwise it has its own format.
        own_file: a file in the run directory that only this task writes.
        encoder_alone: whether its model has no decoder.
        encoder_outputs: returns the number of classes of a run's encoder-only model; 0 for a
            model with a decoder.
        options: options for loading and exporting its runs, in addition to the checkpoint.
    """

    name: str
    scores: dict[str, str]
    command: str
    search: dict[str, Any] = field(default_factory=dict)
    languages: bool = False
    own_file: str = ""
    encoder_alone: bool = False
    encoder_outputs: Callable[[Run], int] = lambda run: 0
    options: frozenset[str] = frozenset(("ensemble", "precision"))

    @property
    def main_score(self) -> str:
        """Name of the score that chooses the best weights by default."""
        return next(iter(self.scores))

    @property
    def settings(self) -> dict[str, Any]:
        """Settings that a preset of another task gets, by "section.field"."""
        return {"training.best_by": self.main_score, **self.search}

    def task_class(self) -> "type[SequenceTask]":
        """Imports the task, and TensorFlow, and returns its class."""
        module = importlib.import_module(f"tf_transformer.tasks.{self.name}.task")
        return getattr(module, f"{self.name.capitalize()}Task")


_ENTRIES = (
    Entry(
        "translation",
        {"bleu": "BLEU", "chrf": "chrF"},
        "translate",
        {"decoding.alpha": 0.6, "decoding.max_extra_length": 50},  # section 6.1
        languages=True,
        options=Entry.options | {"decoding", "tag", "text", "format", "litert"},
    ),
    Entry(
        "parsing",
        {"f1": "F1"},
        "parse",
        {"decoding.alpha": 0.3, "decoding.max_extra_length": 300},  # section 6.3
        own_file=LEXICON_FILE,
    ),
    Entry(
        "classification",
        {"accuracy": "accuracy", "f1": "macro F1"},
        "classify",
        own_file=LABELS_FILE,
        encoder_alone=True,
        encoder_outputs=lambda run: len(read_labels(run)),
        options=frozenset(("precision",)),
    ),
)
TASKS = {entry.name: entry for entry in _ENTRIES}
EXPORTED = ("translation", "classification")  # tasks whose runs can be exported and served


def task_named(name: str) -> Entry:
    """Returns the task of a configuration; UserError if there is no such task."""
    if name not in TASKS:
        raise UserError(f"There is no task {quoted(name)}. There are: {', '.join(TASKS)}.")
    return TASKS[name]


def check_training(config: Config) -> None:
    """Refuses a configuration that its task cannot use, before any work begins.

    Raises:
        UserError: if there is no such task, it does not measure `training.best_by`, its model
            does not fit the run of `training.init_from`, or the task's own check fails.
    """
    task = task_named(config.task)
    _check_score(config)
    if config.training.lora_rank and not config.training.init_from:
        raise UserError(
            "--lora trains adapters on the weights of another run: add --init-from RUN. "
            f"Received: --lora {config.training.lora_rank} without it."
        )
    if config.training.freeze and not config.training.init_from:
        raise UserError(
            "--freeze keeps weights of another run unchanged: add --init-from RUN. Received: "
            f"--freeze {config.training.freeze[0]} without it."
        )
    if config.training.init_from:
        check_source(config, encoder_alone=task.encoder_alone)
    task.task_class().check_config(config)


def discard_foreign_files(run: Run) -> None:
    """Deletes what a start of another task has left in a run that has no state yet."""
    if not run.checkpoints.state_steps():
        for name in _foreign_files(run):
            (run.path / name).unlink()


def _foreign_files(run: Run) -> list[str]:
    """Returns the names of the run's files that only other tasks write."""
    own = task_named(run.config.task).own_file
    names = {other.own_file for other in TASKS.values()} - {own, ""}
    return sorted(name for name in names if (run.path / name).exists())


def check_run(run: Run) -> None:
    """Refuses a run whose config.json names a different task from the one it was trained for.

    Raises:
        UserError: if there is no such task, or the run has settings or files of another task.
    """
    task, data = task_named(run.config.task), run.config.data
    _check_score(run.config)
    foreign = _foreign_files(run)
    if foreign or bool(data.source) != (task.languages and bool(data.train)):
        reason = f"it has {foreign[0]}" if foreign else "its `data` is for another task"
        raise UserError(
            f"{run.path}/config.json has task {run.config.task!r}, but {reason}. Restore "
            "config.json."
        )


def encoder_outputs(run: Run) -> int:
    """Returns the number of classes of a run's encoder-only model; 0 if it has a decoder."""
    return task_named(run.config.task).encoder_outputs(run)


def _check_score(config: Config) -> None:
    measured = (*task_named(config.task).scores, "perplexity")
    if config.training.best_by not in measured:
        raise UserError(
            f"`training.best_by` must be one of {measured} for --task {config.task}. "
            f"Received: {config.training.best_by!r}."
        )
