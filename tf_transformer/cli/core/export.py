"""`python export.py RUN --output DIR`: a SavedModel for TF Serving."""

import argparse
import logging
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tf_transformer.cli.options import (
    add_decoding_options,
    add_run_options,
    add_shortlist_option,
    decoding_config,
    open_run,
)
from tf_transformer.cli.parser import int_from
from tf_transformer.errors import UserError, quoted
from tf_transformer.serving.versions import check_readable

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Writes DIR/VERSION/, a SavedModel that takes strings and returns translations, after "
    "testing it against the Python translator. See docs/serving.md."
)
PRECISIONS = ("float32", "bfloat16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    parser.set_defaults(checkpoint=None)  # to tell "best" from nothing; nothing means best
    parser.add_argument(
        "--average",
        metavar="lastN",
        help="the mean of the last N checkpoints that the run keeps, instead of --checkpoint",
    )
    add_decoding_options(parser)
    add_shortlist_option(parser)
    parser.add_argument(
        "--precision",
        default="float32",
        choices=PRECISIONS,
        help="of weights and computation (default: float32); bfloat16 halves the size and may "
        "change translations: evaluate it",
    )
    parser.add_argument(
        "--no-text",
        action="store_true",
        help="token ids in, token ids out: needs no operation of SentencePiece where it runs, "
        "and converts to LiteRT",
    )
    parser.add_argument("--output", required=True, metavar="DIR", help="the model's folder")
    parser.add_argument(
        "--version",
        type=int_from(1, 2**63 - 1),  # as TF Serving reads it
        metavar="N",
        help="its number (default: the next free one)",
    )


def command(options: argparse.Namespace) -> None:
    text = not options.no_text
    path = export_run(options, Path(options.output), options.version, text=text)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    logger.info("exported %s (%.1f MB)", path, size / 1e6)


def export_run(
    options: argparse.Namespace, base: Path, version: int | None = None, *, text: bool = True
) -> Path:
    """Exports what `add_arguments` describes to BASE/VERSION/; returns that folder."""
    from tf_transformer.cli.console import import_tensorflow_quietly

    check_readable(base)
    run = open_run(options.run)
    decoding = decoding_config(options, run)
    with _checkpoint(run, options) as (name, file):
        import_tensorflow_quietly()

        from tf_transformer.serving.card import model_card
        from tf_transformer.serving.publish import export
        from tf_transformer.tasks.models import load_translator

        precision, shortlist = options.precision, options.shortlist
        translator = load_translator(
            run, file, decoding, precision=precision, shortlist=shortlist
        )
        card = model_card(run, name, file, decoding, precision, shortlist)
        return export(translator, base, version, card, text=text)


@contextmanager
def _checkpoint(run, options: argparse.Namespace) -> Iterator[tuple[str, Path]]:
    """The name and the file of the checkpoint to export; an average is gone afterwards."""
    from tf_transformer.run.checkpoints import average_checkpoints

    if options.average is None:
        name = options.checkpoint or "best"
        yield name, run.checkpoints.find(name)
        return
    if options.checkpoint is not None:
        raise UserError(
            f"--average and --checkpoint exclude each other. Received: {options.average} and "
            f"{options.checkpoint}. Leave out one of them."
        )
    match = re.fullmatch(r"last([1-9]\d{0,8})", options.average)
    if not match:
        raise UserError(
            f"--average must be lastN, such as last5. Received: {quoted(options.average)}."
        )
    files = run.checkpoints.last(int(match[1]))
    if len(files) < int(match[1]):
        raise UserError(
            f"--average {options.average} needs {match[1]} checkpoints. {run.path} keeps "
            f"{len(files)}: choose fewer, or train with a larger training.keep_last."
        )
    with tempfile.TemporaryDirectory() as folder:
        average = Path(folder, "average.npz")
        average_checkpoints(files, average)
        yield f"average of the last {len(files)}: {', '.join(f.stem for f in files)}", average
