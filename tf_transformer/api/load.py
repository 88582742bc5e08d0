"""Loading a run, an export or a .keras file by its path alone."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, overload

from tf_transformer.errors import UserError, quoted
from tf_transformer.quiet import import_tensorflow
from tf_transformer.run import Run
from tf_transformer.serving.versions import find_export, read_card
from tf_transformer.strings import Strings, strings
from tf_transformer.tasks.registry import TASKS, check_run, task_named

if TYPE_CHECKING:  # they import TensorFlow
    from tf_transformer.tasks.classification.exported import ExportedClassifier
    from tf_transformer.tasks.classification.predictor import SentenceClassifier
    from tf_transformer.tasks.parsing.parser import Parser
    from tf_transformer.tasks.translation.exported import ExportedTranslator
    from tf_transformer.tasks.translation.translator import Translator

    AnyTranslator: TypeAlias = Translator | ExportedTranslator
    AnyClassifier: TypeAlias = SentenceClassifier | ExportedClassifier

PRECISIONS = ("float32", "bfloat16", "int8")
_DEFAULT_TASK = next(iter(TASKS))  # for .keras files, and exports whose card names no task


@dataclass(frozen=True)
class _Source:
    """The content of a path: its kind in words, its task and options, and how to load it."""

    kind: str
    task: str
    options: frozenset[str]
    load: Callable[..., Any]


# fmt: off
@overload
def load(path: str | Path, *, task: Literal["translation"] | None = None,
         checkpoint: str | int | None = None, ensemble: Strings = (),
         tag: str | None = None, precision: str = "float32", litert: bool = False,
         tokenizer: str | Path | None = None) -> "AnyTranslator": ...
@overload
def load(path: str | Path, *, task: Literal["parsing"], checkpoint: str | int | None = None,
         ensemble: Strings = (), precision: str = "float32") -> "Parser": ...
@overload
def load(path: str | Path, *, task: Literal["classification"],
         checkpoint: str | int | None = None,
         precision: str = "float32") -> "AnyClassifier": ...
# fmt: on
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
) -> "AnyTranslator | Parser | AnyClassifier":
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
        precision: for runs: float32 or bfloat16, for weights and computation; or int8, which
            implies `litert`.
        litert: for runs: whether to search in LiteRT, which is faster for one sentence.
        tokenizer: for .keras files: its SentencePiece model, or a run that has it; by default
            tokenizer.model beside the file.

    Returns:
        A `Translator`, `Parser` or `SentenceClassifier`; for an export an
        `ExportedTranslator` or `ExportedClassifier`, which lack the methods that need the
        original model.

    Raises:
        UserError: if the path is none of these, or does not support an option.
    """
    content = _inspect(Path(path))
    if task not in (None, content.task):
        raise UserError(f"{path} must be of task {quoted(task)}. Received: {content.kind}.")
    options: dict[str, Any] = {
        "checkpoint": str(checkpoint) if isinstance(checkpoint, int) else checkpoint,
        "ensemble": strings("ensemble", ensemble),
        "tag": tag, "tokenizer": tokenizer, "litert": litert,
        "precision": "" if precision == PRECISIONS[0] else precision,
    }  # fmt: skip
    chosen = {name: value for name, value in options.items() if value}
    if wrong := {*chosen, *(["int8"] if precision == "int8" else [])} - content.options:
        raise UserError(f"`{min(wrong)}` is not for {content.kind}. Received: {path}.")
    if precision not in PRECISIONS:
        raise UserError(
            f"`precision` must be one of {PRECISIONS}. Received: {quoted(precision)}."
        )
    return content.load(**chosen)


def load_run(run: Run, checkpoint: str | None = None, **options: Any) -> Any:
    """Loads a run of any task; see `load` for arguments and errors."""
    run.weights(checkpoint)  # before TensorFlow is imported
    if "ensemble" in options:
        options["ensemble"] = [_open(Path(other)) for other in options["ensemble"]]
    import_tensorflow()
    return task_named(run.config.task).record().load(run, checkpoint, **options)


def _inspect(path: Path) -> _Source:
    if path.suffix == ".keras" and path.is_file():
        kind, options = "a .keras file", frozenset(("tokenizer",))
        return _Source(kind, _DEFAULT_TASK, options, lambda **how: _load_keras(path, **how))
    if export := find_export(path):
        task = _task_of(export)
        return _Source("an export", task, frozenset(), lambda: _load_export(export))
    run = _open(path)
    task, options = run.config.task, task_named(run.config.task).options | {"checkpoint"}
    return _Source(f"a run of task {task}", task, options, lambda **how: load_run(run, **how))


def _load_export(path: Path) -> Any:
    import_tensorflow()
    return task_named(_task_of(path)).record().load_export(path)


def _task_of(export: Path) -> str:
    return read_card(export).get("task", _DEFAULT_TASK)


def _load_keras(path: Path, tokenizer: str | Path | None = None) -> "Translator":
    import_tensorflow()

    from tf_transformer.tasks.translation.translator import load_keras_file

    return load_keras_file(path, tokenizer)


def _open(path: Path) -> Run:
    if not (path / "config.json").exists():
        received = "a folder that is none of them" if path.is_dir() else "no such path"
        raise UserError(
            f"{path} must be a run directory, an export or a .keras file. Received: {received}."
        )
    run = Run.open(path)
    check_run(run)
    return run
