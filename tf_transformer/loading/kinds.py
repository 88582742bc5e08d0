"""`load`, the kinds of things it takes and their options; TensorFlow comes after the checks."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from tf_transformer.base.errors import Strings, UserError, names_arguments, quoted, strings
from tf_transformer.base.system import import_tensorflow
from tf_transformer.config import SEARCH
from tf_transformer.config.combinations import check
from tf_transformer.config.config import DECODING_PRECISIONS
from tf_transformer.export.card import read_card
from tf_transformer.export.versions import find_export
from tf_transformer.run import Run
from tf_transformer.tasks.registry import TASKS, Entry, task_named, task_of

if TYPE_CHECKING:  # they import TensorFlow
    from tf_transformer.tasks.classification.predictor import SentenceClassifier
    from tf_transformer.tasks.parsing.parser import Parser
    from tf_transformer.translation.translator import Translator

# XLA is for Python alone: TF Serving compiles nothing.
_OF_EXPORTS, _OF_KERAS_FILES = frozenset(SEARCH) - {"jit_compile"}, frozenset(("tokenizer",))
_KNOWN = _OF_EXPORTS.union(_OF_KERAS_FILES, *(entry.options for entry in TASKS.values()))


@dataclass(frozen=True)
class Source:
    """A run, an export or a .keras file."""

    path: Path  # its folder or file; for an export the folder of its version
    kind: str  # what it is, for messages
    task: Entry
    options: frozenset[str]  # names of the options that suit it
    run: Run | None = None
    prefix: str = ""  # of the name of the function that loads it; "" for a run

    def require_task(self, name: str) -> None:
        """Raises UserError if the task is another."""
        if self.task.name != name:
            raise UserError(
                f"{self.path} must be of task {quoted(name)}. Received: {self.kind}."
            )

    def refuse(self, chosen: Iterable[str], written: Callable[[str], str]) -> None:
        """Raises UserError for the first option that is for other things to load.

        Options that are about no loading are ignored; `written` returns one as the user writes
        it.
        """
        for name in chosen:
            if name in _KNOWN - self.options:
                of_run = ", but for the run it was made from" * (name in self.task.options)
                raise UserError(
                    f"{written(name)} is not for {self.kind}{of_run}. Received: {self.path}."
                )

    def require_files(self, checkpoint: str | None, tag: str | None = None) -> None:
        """Raises UserError if a run lacks the weights, its tokenizer or the tag."""
        from tf_transformer.data.vocabulary import require_known  # imports SentencePiece

        if self.run:
            self.run.weights(checkpoint)
            require_known(tag, self.run.config.data, self.run.require_tokenizer())


def find(path: Path) -> Source:
    """Returns what a path holds; UserError if it is nothing that can be loaded."""
    if path.suffix == ".keras" and path.is_file():
        task = task_named("translation")
        return Source(path, "a .keras file", task, _OF_KERAS_FILES, prefix="keras_")
    if export := find_export(path):
        return of_export(export)
    if not (path / "config.json").exists():
        received = "no such path"
        if path.exists():
            received = f"a {'folder' if path.is_dir() else 'file'} that is none of them"
        raise UserError(
            f"{path} must be a run directory, an export or a .keras file. Received: {received}."
        )
    return of_run(Run.open(path))


def of_run(run: Run) -> Source:
    """Returns a run as a `Source`."""
    task = task_of(run)
    return Source(run.path, f"a run of task {task.name}", task, task.options, run)


def of_export(path: Path) -> Source:
    """Returns the folder of a SavedModel as a `Source`; without a card it translates."""
    name = read_card(path).get("task")  # opening it refuses a damaged card
    task = task_named(name if isinstance(name, str) else "translation")
    return Source(path, "an export", task, _OF_EXPORTS, prefix="exported_")


# fmt: off
@overload
def load(path: str | Path, *, task: Literal["translation"] | None = None,
         checkpoint: str | int | None = None, ensemble: Strings = (),
         tag: str | None = None, precision: str = "float32", litert: bool = False,
         tokenizer: str | Path | None = None) -> "Translator": ...
@overload
def load(path: str | Path, *, task: Literal["parsing"], checkpoint: str | int | None = None,
         ensemble: Strings = (), precision: str = "float32") -> "Parser": ...
@overload
def load(path: str | Path, *, task: Literal["classification"],
         checkpoint: str | int | None = None,
         precision: str = "float32") -> "SentenceClassifier": ...
# fmt: on
@names_arguments()
def load(
    path: str | Path,
    *,
    task: str | None = None,
    checkpoint: str | int | None = None,
    ensemble: Strings = (),
    tag: str | None = None,
    precision: str = "float32",
    litert: bool = False,
    tokenizer: str | Path | None = None,
) -> "Translator | Parser | SentenceClassifier":
    """Loads a run, an export or a .keras file.

    Args:
        path: a run directory; a SavedModel, or a folder of versions, of which the newest is
            loaded; or a .keras file of a `Transformer`.
        task: "translation", "parsing" or "classification": refuses any other task, and tells
            type checkers which classes to expect. By default the path decides, and type
            checkers expect translation.
        checkpoint: for runs: best, average, last or a step; by default the setting
            decoding.checkpoint.
        ensemble: for runs: other runs with the same tokenizer, to decode with the mean of
            all probabilities.
        tag: for runs: text before each source, one of the tags it was trained with.
        precision: for runs: float32, bfloat16 or int8, for weights and computation.
        litert: for runs: whether to search in LiteRT, which is faster for one sentence.
        tokenizer: for .keras files: its SentencePiece model, or a run that has it; by default
            tokenizer.model beside the file.

    Returns:
        A `Translator`, `Parser` or `SentenceClassifier`. Those of an export refuse what needs
        the original model.

    Raises:
        UserError: if the path is none of these, or does not support an option.

    Example:
        >>> import tf_transformer
        >>> tf_transformer.load("runs/mine").translate("Good morning.")
        '...'
    """
    source, others = find(Path(path)), strings("ensemble", ensemble)
    if task:
        source.require_task(task)
    options: dict[str, Any] = {
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "ensemble": others,
        "tag": tag, "tokenizer": tokenizer, "litert": litert,
        "precision": "" if precision == "float32" else precision,
    }  # fmt: skip
    chosen = {name: value for name, value in options.items() if value}
    source.refuse(chosen, "`{}`".format)
    if precision not in DECODING_PRECISIONS:
        raise UserError(
            f"`precision` must be one of {DECODING_PRECISIONS}. Received: {quoted(precision)}."
        )
    check(chosen)
    if others:
        chosen["ensemble"] = [Run.open(other) for other in others]
    source.require_files(chosen.get("checkpoint"), tag)
    import_tensorflow()
    loader = source.task.loader(source.prefix)  # `load_translator` for a run of translation
    return loader(source.run or source.path, **chosen)


def load_run(run: Run, checkpoint: str | None = None, **options: Any) -> Any:
    """Loads a run of any task with its function of `loading.load`, which imports TensorFlow.

    The options are `decoding`, settings of the search instead of the run's; `constraint`, see
    `load_parser`; and those of `load_engine` that suit the task. Raises UserError if the run
    lacks the checkpoint, by default that of its own setting, its tokenizer or another of its
    files.
    """
    return task_of(run).loader()(run, checkpoint, **options)
