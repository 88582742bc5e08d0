"""The functions that a task provides to the command line."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from tf_transformer.config import Config, DataConfig
from tf_transformer.data.corpus import SIDES, SideName
from tf_transformer.errors import UserError
from tf_transformer.evaluation.comparison import DevText
from tf_transformer.run import Run

Progress = Callable[[str, int], None]


def _without_exports(*_: object) -> NoReturn:
    raise UserError("Runs of this task have no exports: load the run itself.")


@dataclass(frozen=True)
class TaskRecord:
    """The functions of a task; building a record imports TensorFlow.

    Attributes:
        check_config: raises UserError for data and settings that the task cannot use.
        prepare: `prepare(run, progress, may_encode=...)` returns the task for the trainer
            (`training.task.Task`), with its data encoded in the run.
        effective_data: returns the run's data as parallel text, for `doctor`.
        prose: whether both sides of that text are natural-language sentences.
        read_dev_text: `read_dev_text(run, source, reference)` reads files for the gate of an
            export; `source` is None if one file holds both inputs and answers.
        text_sides: the sides of the parallel text that the tokenizer handles.
    """

    check_config: Callable[[Config], None]
    prepare: Callable[..., Any]
    effective_data: Callable[[Run], DataConfig]
    prose: bool
    read_dev_text: Callable[[Run, Any, Path], DevText] = _without_exports
    text_sides: tuple[SideName, ...] = SIDES
