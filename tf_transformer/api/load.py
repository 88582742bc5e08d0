"""Loading a run, an export or a .keras file by its path alone."""

from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from tf_transformer.base.errors import Strings, UserError, quoted, strings
from tf_transformer.base.system import import_tensorflow
from tf_transformer.config.combinations import check
from tf_transformer.config.config import DECODING_PRECISIONS
from tf_transformer.export.versions import find_export, read_card
from tf_transformer.run import Run
from tf_transformer.tasks.registry import task_named

if TYPE_CHECKING:  # they import TensorFlow
    from tf_transformer.tasks.classification.predictor import SentenceClassifier
    from tf_transformer.tasks.parsing.parser import Parser
    from tf_transformer.tasks.translation.translator import Translator


_TRANSLATION = "translation"  # of .keras files, and of exports whose card names no task


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
    """
    path, others = Path(path), strings("ensemble", ensemble)
    export, run = None, None
    supported: frozenset[str] = frozenset()
    if path.suffix == ".keras" and path.is_file():
        kind, content, supported = "a .keras file", _TRANSLATION, frozenset(["tokenizer"])
    elif export := find_export(path):
        kind, content = "an export", _task_of(export)
    else:
        run = _open(path)
        kind, content = f"a run of task {run.config.task}", run.config.task
        supported = task_named(content).options | {"checkpoint"}
    if task not in (None, content):
        raise UserError(f"{path} must be of task {quoted(task)}. Received: {kind}.")
    options: dict[str, Any] = {
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "ensemble": others,
        "tag": tag, "tokenizer": tokenizer, "litert": litert,
        "precision": "" if precision == "float32" else precision,
    }  # fmt: skip
    chosen = {name: value for name, value in options.items() if value}
    if wrong := chosen.keys() - supported:
        raise UserError(f"`{min(wrong)}` is not for {kind}. Received: {path}.")
    if precision not in DECODING_PRECISIONS:
        raise UserError(
            f"`precision` must be one of {DECODING_PRECISIONS}. Received: {quoted(precision)}."
        )
    check(chosen)
    if others:
        chosen["ensemble"] = [_open(Path(other)) for other in others]
    if run:
        return load_run(run, **chosen)
    import_tensorflow()
    if export:
        return _load_export(export)
    from tf_transformer.tasks.translation.translator import load_keras_file

    return load_keras_file(path, tokenizer)


def load_run(run: Run, checkpoint: str | Path | None = None, **options: Any) -> Any:
    """Loads a run of any task.

    Args:
        run: the run.
        checkpoint: best, average, last, a step or a file; None for the run's own setting.
        **options: see `load_translator`, `load_parser` and `load_classifier`.
    """
    run.weights(checkpoint)  # before TensorFlow is imported
    import_tensorflow()
    if run.config.task == "parsing":
        from tf_transformer.tasks.parsing.parser import load_parser

        return load_parser(run, checkpoint, **options)
    if run.config.task == "classification":
        from tf_transformer.tasks.classification.predictor import load_classifier

        return load_classifier(run, checkpoint, **options)
    from tf_transformer.tasks.translation.translator import load_translator

    return load_translator(run, checkpoint, **options)


def _load_export(path: Path) -> "Translator | SentenceClassifier":
    if _task_of(path) == "classification":
        from tf_transformer.tasks.classification.predictor import (
            ExportClassifier,
            SentenceClassifier,
        )

        return SentenceClassifier(ExportClassifier(path))
    from tf_transformer.tasks.translation.translator import load_exported_translator

    return load_exported_translator(path)


def _task_of(export: Path) -> str:
    return read_card(export).get("task", _TRANSLATION)


def _open(path: Path) -> Run:
    if not (path / "config.json").exists():
        received = "no such path"
        if path.exists():
            received = f"a {'folder' if path.is_dir() else 'file'} that is none of them"
        raise UserError(
            f"{path} must be a run directory, an export or a .keras file. Received: {received}."
        )
    return Run.open(path)
