"""Exporting a run as a SavedModel."""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tf_transformer.api.load import load_run
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import average_checkpoints


def export_run(
    run: Run,
    base: Path,
    *,
    checkpoint: str | None = None,
    average: int | None = None,
    options: Mapping[str, Any] = MappingProxyType({}),
    **how: Any,
) -> Path:
    """Exports a run to BASE/VERSION/ after testing the export; returns that folder.

    Args:
        run: a run of one of the tasks in `registry.EXPORTED`.
        base: the folder of the model's versions.
        checkpoint: best, average, last or a step; None for the run's default.
        average: number of last checkpoints to average instead.
        options: arguments to load the run with: `ensemble`, `precision` and `tag`, as far as
            its task has them.
        **how: arguments of the loaded model's `export`, such as `version` and `alpha`.

    Raises:
        NotPublishedError: if the export does not pass the gate.
        UserError: if the run lacks the checkpoints, or the export cannot be written.
    """
    with _weights(run, checkpoint, average) as (name, weights):
        return load_run(run, weights, name=name, **options).export(base, **how)


@contextmanager
def _weights(
    run: Run, checkpoint: str | None, average: int | None
) -> Iterator[tuple[str, str | Path | None]]:
    """Yields a description and the checkpoint, or a temporary file of averaged weights."""
    if average is None:
        yield "", checkpoint
        return
    files = run.checkpoints.last(average)
    if len(files) < average:
        raise UserError(
            f"--average last{average} needs {average} checkpoints. {run.path} keeps "
            f"{len(files)}: choose fewer, or train with a larger training.keep_last."
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "average.npz")
        used = average_checkpoints(files, file)
        some = "" if len(used) == average else f"{len(used)} of "  # others are damaged
        yield f"average of {some}the last {average}: {', '.join(f.stem for f in used)}", file
