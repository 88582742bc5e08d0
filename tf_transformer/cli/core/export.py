"""`tf-transformer export RUN --output DIR`: a SavedModel for TF Serving."""

import argparse
import logging
import re
from pathlib import Path

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import add_translator_options, decoding_config, open_run
from tf_transformer.cli.parser import int_from
from tf_transformer.errors import UserError, quoted
from tf_transformer.serving.versions import check_readable

logger = logging.getLogger(__name__)

PRECISIONS = ("float32", "bfloat16")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add_translator_options(parser, shortlist=True)
    add("--average", metavar="lastN", help="the mean of the last N checkpoints of the run")
    add(
        "--precision",
        default="float32",
        choices=PRECISIONS,
        help="of weights and computation (default: float32); bfloat16 halves the size and may "
        "change translations: evaluate it",
    )
    add(
        "--no-text",
        action="store_true",
        help="take and return token ids: the model then needs no SentencePiece operations, and "
        "converts to LiteRT",
    )
    add("--output", required=True, metavar="DIR", help="the model's folder")
    version = int_from(1, 2**63 - 1)  # as TF Serving reads it
    add("--version", type=version, metavar="N", help="default: the next free one")


def command(options: argparse.Namespace) -> None:
    """Writes DIR/VERSION/, a SavedModel that takes strings and returns translations.

    The written files are first tested against the Python translator; see
    docs/guides/exporting.md.
    """
    output = Path(options.output)
    check_readable(output)
    run = open_run(options.run)
    decoding = decoding_config(options, run)
    average = _average(options)
    if average is None:
        run.weights(options.checkpoint)  # before TensorFlow is imported
    import_tensorflow_quietly()

    from tf_transformer.api.export import export_run

    path = export_run(
        run,
        output,
        checkpoint=options.checkpoint,
        average=average,
        decoding=decoding,
        precision=options.precision,
        shortlist=options.shortlist,
        text=not options.no_text,
        version=options.version,
    )
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    logger.info("exported %s (%.1f MB)", path, size / 1e6)


def _average(options: argparse.Namespace) -> int | None:
    """The number of the last checkpoints to average; None to export a single one."""
    if options.average is None:
        return None
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
    return int(match[1])
