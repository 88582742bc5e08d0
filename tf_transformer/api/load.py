"""Loading of what was trained or exported, by its path alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

from tf_transformer.decoding.threads import MANY, ONE, use_threads
from tf_transformer.errors import UserError, quoted
from tf_transformer.quiet import import_tensorflow
from tf_transformer.run import Run
from tf_transformer.serving.versions import find_export, read_config
from tf_transformer.strings import Strings, strings
from tf_transformer.tasks.registry import check_run

if TYPE_CHECKING:  # they import TensorFlow
    from tf_transformer.api.translator import Translator
    from tf_transformer.tasks.classification.predictor import SentenceClassifier
    from tf_transformer.tasks.parsing.parser import Parser

PRECISIONS = ("float32", "bfloat16", "int8")
# Arguments of `load` for a run, by its task.
_OPTIONS = {
    "translation": {"checkpoint", "ensemble", "shortlist", "precision"},
    "parsing": {"checkpoint", "ensemble"},
    "classification": {"checkpoint"},
}


# fmt: off
@overload
def load(path: str | Path, *, task: Literal["translation"] | None = None,
         checkpoint: str | None = None, ensemble: Strings = (), shortlist: bool = False,
         precision: str = "float32", tokenizer: str | Path | None = None,
         threads: int | None = None) -> "Translator": ...
@overload
def load(path: str | Path, *, task: Literal["parsing"], checkpoint: str | None = None,
         ensemble: Strings = (), threads: int | None = None) -> "Parser": ...
@overload
def load(path: str | Path, *, task: Literal["classification"],
         checkpoint: str | None = None, threads: int | None = None) -> "SentenceClassifier": ...
# fmt: on
def load(
    path: str | Path,
    *,
    task: str | None = None,
    checkpoint: str | None = None,
    ensemble: Sequence[str] = (),
    shortlist: bool = False,
    precision: str = "float32",
    tokenizer: str | Path | None = None,
    threads: int | None = None,
) -> "Translator | Parser | SentenceClassifier":
    """Loads a run, an export or a .keras file, whichever the path is.

    Args:
        path: a run directory; a SavedModel, or the folder of its versions, of which the newest
            is taken; or a .keras file of a `Transformer`.
        task: "translation", "parsing" or "classification": refuses a run of another task, and
            tells type checkers which class to expect. By default the task is that of the run.
        checkpoint: of a run: best, average, last or a step; by default its own choice, see
            decoding.checkpoint.
        ensemble: further runs with the same tokenizer, to decode with the mean of all
            probabilities.
        shortlist: of a run: whether to search with its shortlist.
        precision: of a run: float32 or bfloat16, for weights and computation; or int8, with
            which LiteRT searches several times as fast for one sentence.
        tokenizer: of a .keras file: its SentencePiece model, or a run that has it; by default
            tokenizer.model beside the file.
        threads: that share an operation, as of then in this process. None takes the number
            that is fastest for this model and both one sentence and many, which is measured
            once, unless TensorFlow has begun to compute.

    Returns:
        A `Translator`, or the `Parser` or `SentenceClassifier` of a run of these tasks.

    Raises:
        UserError: if the path is none of these, or an option is not for it.
    """
    path, others = Path(path), strings("ensemble", ensemble)
    export = run = None
    if path.suffix == ".keras" and path.is_file():
        kind, takes = "a .keras file", {"tokenizer"}
    elif export := find_export(path):
        kind, takes = "an export", set()
    else:
        run = _open(path)
        kind, takes = f"a run of task {run.config.task}", _OPTIONS[run.config.task]
    if task not in (None, run.config.task if run else "translation"):
        raise UserError(f"{path} must be of task {quoted(task)}. Received: {kind}.")
    given = {
        "checkpoint": checkpoint is not None, "ensemble": others, "shortlist": shortlist,
        "precision": precision != PRECISIONS[0], "tokenizer": tokenizer is not None,
    }  # fmt: skip
    if wrong := [name for name in given if given[name] and name not in takes]:
        raise UserError(f"`{wrong[0]}` is not for {kind}. Received: {path}.")
    if precision not in PRECISIONS:
        raise UserError(
            f"`precision` must be one of {PRECISIONS}. Received: {quoted(precision)}."
        )
    if run:
        run.weights(checkpoint)  # before TensorFlow is imported
    members = [_open(Path(other)) for other in others]
    import_tensorflow()
    config = run.config if run else read_config(export) if export else None
    if precision != "int8":  # LiteRT has threads of its own
        use_threads(threads, config, [ONE, MANY])

    from tf_transformer.api import exported, runs

    if export:
        return exported.ExportedTranslator(export)
    if not run:
        return runs.load_keras_file(path, tokenizer)
    return runs.load_run(
        run, checkpoint, members, shortlist=shortlist, precision=precision, threads=threads
    )


def _open(path: Path) -> Run:
    if not (path / "config.json").exists():
        received = "a folder without any of them" if path.is_dir() else "nothing there"
        raise UserError(
            f"{path} must be a run directory, an export or a .keras file. Received: {received}."
        )
    run = Run.open(path)
    check_run(run)
    return run
