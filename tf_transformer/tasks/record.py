"""Record of a task's functions, for the command line."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_transformer.config import Config, DataConfig
from tf_transformer.data.corpus import SIDES, SideName
from tf_transformer.evaluation.comparison import DevText
from tf_transformer.run import Run

Progress = Callable[[str, int], None]


@dataclass(frozen=True)
class TaskRecord:
    """The functions of a task; they import TensorFlow, so take them after it is imported.

    Attributes:
        check_config: refuses data and settings that the task cannot work with; UserError.
        prepare: `prepare(run, progress, may_encode=...)` is the task as the trainer takes it
            (`training.task.Task`), with its data in the run.
        effective_data: the run's data as parallel text, for `doctor`.
        prose: whether both sides of that text are sentences of a language.
        text_sides: the sides of it that the tokenizer is for.
        load: `load(run, checkpoint=None, *, name="", **options)` is the trained model as users
            have it, with those of `registry.Entry.options` that it takes; its `export` writes
            a SavedModel.
        load_export: the same from the folder of such a SavedModel.
        read_dev_text: `read_dev_text(run, source, reference)` reads files for the gate of an
            export; `source` is None where the text is in one file.
    """

    check_config: Callable[[Config], None]
    prepare: Callable[..., Any]
    effective_data: Callable[[Run], DataConfig]
    prose: bool
    load: Callable[..., Any]
    load_export: Callable[[Path], Any]
    read_dev_text: Callable[[Run, Any, Path], DevText]
    text_sides: tuple[SideName, ...] = SIDES
