"""The tasks by name, and what they check before training; nothing here imports TensorFlow."""

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from tf_transformer.config import SEARCH, settings_with
from tf_transformer.config.config import WITHOUT_BLANKS
from tf_transformer.config.settings import find_named
from tf_transformer.run import Run
from tf_transformer.run.run import BLEU_TOKENIZER

if TYPE_CHECKING:  # it imports TensorFlow
    from tf_transformer.tasks.task import SequenceTask


_DECODER = frozenset((*SEARCH, "checkpoint", "ensemble", "precision"))


@dataclass(frozen=True)
class Entry:
    """Description of a task that does not need TensorFlow."""

    name: str  # also that of its package in `tasks`
    # Names for `training.best_by`, with labels to show; the first is the main score.
    scores: dict[str, str]
    command: str  # of `tf-transformer`, that uses a trained run
    user: str  # the same in Python, as in `load_translator` of `loading.load`
    # Settings of the search that a preset of another task gets.
    search: dict[str, Any] = field(default_factory=dict)
    languages: bool = False  # whether its data is text in two languages, or has its own format
    encoder_alone: bool = False  # whether its model has no decoder
    options: frozenset[str] = _DECODER  # for loading and exporting its runs

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
        room = "tasks." * (self.name != "translation") + self.name
        module = importlib.import_module(f"tf_transformer.{room}.task")
        return getattr(module, f"{self.name.capitalize()}Task")

    def loader(self, prefix: str = "") -> Callable[..., Any]:
        """Imports TensorFlow; returns what loads a run, or with `prefix` another `Source`."""
        module = importlib.import_module("tf_transformer.loading.load")
        return getattr(module, f"load_{prefix}{self.user}")


_ENTRIES = (
    Entry(
        "translation",
        {"bleu": "BLEU", "chrf": "chrF"},
        "translate",
        "translator",
        {"decoding.alpha": 0.6, "decoding.max_extra_length": 50},  # section 6.1
        languages=True,
        options=_DECODER | {"tag", "litert", "threads", "alignments", "format", "no_text"},
    ),
    Entry(
        "parsing",
        {"f1": "F1"},
        "parse",
        "parser",
        {"decoding.alpha": 0.3, "decoding.max_extra_length": 300},  # section 6.3
    ),
    Entry(
        "classification",
        {"accuracy": "accuracy", "f1": "macro F1"},
        "classify",
        "classifier",
        encoder_alone=True,
        options=frozenset(("checkpoint", "precision")),
    ),
)
TASKS = {entry.name: entry for entry in _ENTRIES}
EXPORTED = ("translation", "classification")  # tasks whose runs can be exported and served


def task_named(name: str) -> Entry:
    """Returns the task of a configuration; UserError if there is no such task."""
    return find_named("task", name, TASKS)


def task_of(run: Run) -> Entry:
    """Returns the task of a run."""
    return task_named(run.config.task)


def encoder_outputs(run: Run) -> int:
    """Returns the number of classes of a run's encoder-only model; 0 if it has a decoder."""
    from tf_transformer.tasks.classification.labelled import read_labels

    return len(read_labels(run)) if task_of(run).encoder_alone else 0


# --- Training that starts from the weights of another run -------------------------------------


def settings_from(run: Run, values: Mapping[str, Any], named: object) -> dict[str, Any]:
    """Returns what training that begins with a run's weights takes from its configuration.

    That is its model, except dropout rates and trained positions, and its tokenizer. If no
    preset or recipe is `named` and the task is the same, it is also its recipe: dropout,
    training and search, languages, length limits and BLEU's tokeniser (see
    `Setting.init_from`), unless that is one for text without blanks, as the new text may have
    some. Subwords are sampled at the run's rate, if at all. `values` are the settings so far,
    with `task`.
    """
    theirs = run.config.flat()
    names = [*settings_with(init_from="same"), *settings_with(init_from="taken")]
    if not named and run.config.task == values["task"]:
        names += settings_with(init_from="recipe")
    if theirs[BLEU_TOKENIZER] in WITHOUT_BLANKS:
        names = [name for name in names if name != BLEU_TOKENIZER]
    rate = values["data.subword_sampling"] and theirs["data.subword_sampling"]
    taken = {"data.tokenizer": str(run.tokenizer), "data.subword_sampling": rate}
    return taken | {name: theirs[name] for name in names}
