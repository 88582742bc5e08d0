"""`load`: what stands at a path, and the options that suit it; TensorFlow comes after these."""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tf_transformer.base.errors import Strings, UserError, quoted, strings
from tf_transformer.base.system import import_tensorflow
from tf_transformer.config import SEARCH
from tf_transformer.config.combinations import check
from tf_transformer.config.config import DECODING_PRECISIONS, TASK
from tf_transformer.export.card import read_card
from tf_transformer.export.versions import find_export, is_lite
from tf_transformer.run import Run

if TYPE_CHECKING:  # it imports TensorFlow
    from tf_transformer.translation.translator import Translator

# Names of options. XLA is for Python alone: TF Serving compiles nothing.
_OF_RUNS = frozenset((*SEARCH, "checkpoint", "ensemble", "precision", "tag", "litert"))
_OF_RUNS |= {"threads", "alignments", "format", "no_text", "gpu", "sustained_tflops"}
_OF_EXPORTS, _OF_KERAS_FILES = frozenset(SEARCH) - {"jit_compile"}, frozenset(("tokenizer",))
_OF_LITE = _OF_EXPORTS | {"threads"}
_KNOWN = _OF_RUNS | _OF_KERAS_FILES


@dataclass(frozen=True)
class Source:
    """A run, an export or a .keras file."""

    path: Path  # its folder or file; for an export the folder of its version
    kind: str  # what it is, for messages
    options: frozenset[str]  # names of the options that suit it
    run: Run | None = None

    def refuse(self, chosen: Iterable[str]) -> None:
        """Raises UserError for the first option that is for other things to load.

        Options that are about no loading are ignored.
        """
        for name in chosen:
            if name in _KNOWN - self.options:
                of_run = ", but for the run it was made from" * (name in _OF_RUNS)
                raise UserError(
                    f"`{name}` is not for {self.kind}{of_run}. Received: {self.path}."
                )

    def require_files(self, checkpoint: str | None, tag: str | None = None) -> None:
        """Raises UserError if a run lacks the weights, its tokenizer or the tag."""
        from tf_transformer.data.vocabulary import require_known  # imports SentencePiece

        if self.run:
            self.run.weights(checkpoint)
            require_known(tag, self.run.config.data, self.run.require_tokenizer())

    def translator(self, **options: Any) -> "Translator":
        """Loads it, with options that suit it; imports TensorFlow unless it is for LiteRT."""
        if not (self.run or self.path.suffix == ".keras"):
            from tf_transformer.loading.exports import load_exported_translator

            return load_exported_translator(self.path, **options)

        from tf_transformer.loading import translators

        if self.run:
            return translators.load_translator(self.run, **options)
        return translators.load_keras_translator(self.path, **options)


def find(path: Path) -> Source:
    """Returns what a path holds; UserError if it is nothing that can be loaded."""
    if path.suffix == ".keras" and path.is_file():
        return Source(path, "a .keras file", _OF_KERAS_FILES)
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
    return Source(run.path, "a run", _OF_RUNS, run)


def of_export(path: Path) -> Source:
    """Returns the folder of an export as a `Source`; UserError if it labels sentences."""
    task = read_card(path).get("task")  # opening it refuses a damaged card
    if isinstance(task, str):
        TASK.check(f"{path}: task", task)
    if is_lite(path):
        return Source(path, "an export for LiteRT", _OF_LITE)
    return Source(path, "an export", _OF_EXPORTS)


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
) -> "Translator":
    """Loads a run, an export or a .keras file.

    Args:
        path: a run directory; an export, a SavedModel or for LiteRT, or a folder of versions,
            of which the newest is loaded; or a .keras file of a `Transformer`.
        task: "translation" or None: what 1.1.0 could choose from.
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
        A `Translator`. That of an export refuses what needs the original model.

    Raises:
        UserError: if the path is none of these, or does not support an option.

    Example:
        >>> import tf_transformer
        >>> tf_transformer.load("runs/mine").translate("Good morning.")
        '...'
    """
    if task is not None:
        TASK.check("task", task)
    source, others = find(Path(path)), strings("ensemble", ensemble)
    options: dict[str, Any] = {
        "checkpoint": None if checkpoint is None else str(checkpoint),
        "ensemble": others,
        "tag": tag, "tokenizer": tokenizer, "litert": litert,
        "precision": "" if precision == "float32" else precision,
    }  # fmt: skip
    chosen = {name: value for name, value in options.items() if value}
    source.refuse(chosen)
    if precision not in DECODING_PRECISIONS:
        raise UserError(
            f"`precision` must be one of {DECODING_PRECISIONS}. Received: {quoted(precision)}."
        )
    check(chosen)
    if others:
        chosen["ensemble"] = [Run.open(other) for other in others]
    source.require_files(chosen.get("checkpoint"), tag)
    if not is_lite(source.path):
        import_tensorflow()
    return source.translator(**chosen)
