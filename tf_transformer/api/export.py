"""Exporting a run as a SavedModel."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tf_transformer.api.runs import translator_of
from tf_transformer.config import DecodingConfig
from tf_transformer.errors import UserError
from tf_transformer.run import Run
from tf_transformer.run.checkpoints import average_checkpoints
from tf_transformer.serving.gate import Gate


def export_run(
    run: Run,
    base: Path,
    *,
    checkpoint: str | None = None,
    average: int | None = None,
    decoding: DecodingConfig | None = None,
    precision: str = "float32",
    shortlist: bool = False,
    tag: str | None = None,
    text: bool = True,
    version: int | None = None,
    gate: Gate | None = None,
) -> Path:
    """Exports a run to BASE/VERSION/, after testing it; returns that folder.

    Args:
        run: a run of text to text.
        base: the model's folder.
        checkpoint: best, average, last or a step; None for the run's own choice.
        average: number of the last checkpoints to average instead.
        decoding: options of the search; None for the run's own.
        precision: float32 or bfloat16, for weights and computation.
        shortlist: whether to search with the run's shortlist.
        tag: text before each source.
        text: whether the model takes text, else token ids.
        version: its number; None for the next free one.
        gate: the published model that it must not be worse than.

    Raises:
        NotPublishedError: if it does not pass the gate.
        UserError: if the run lacks the checkpoints, or the export cannot be written.
    """
    checkpoint = checkpoint or run.config.decoding.checkpoint
    with _weights(run, checkpoint, average) as (name, file):
        translator = translator_of(
            run,
            file,
            decoding,
            name=name,
            precision=precision,
            shortlist=shortlist,
            tag=tag,
        )
        return translator.export(base, version=version, text=text, gate=gate)


@contextmanager
def _weights(run: Run, checkpoint: str, average: int | None) -> Iterator[tuple[str, Path]]:
    """The description and the file of the weights; an average is deleted afterwards."""
    if average is None:
        yield checkpoint, run.checkpoints.find(checkpoint)
        return
    files = run.checkpoints.last(average)
    if len(files) < average:
        raise UserError(
            f"--average last{average} needs {average} checkpoints. {run.path} keeps "
            f"{len(files)}: choose fewer, or train with a larger training.keep_last."
        )
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "average.npz")
        average_checkpoints(files, file)
        yield f"average of the last {average}: {', '.join(f.stem for f in files)}", file
