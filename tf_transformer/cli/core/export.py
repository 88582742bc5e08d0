"""`tf-transformer export RUN --output DIR`: a SavedModel for TF Serving."""

import argparse
import logging
import re
from pathlib import Path

from tf_transformer.api.load import PRECISIONS
from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.lines import require_equal_lengths
from tf_transformer.cli.options import add_translator_options, decoding_config, open_run
from tf_transformer.cli.parser import float_from, int_from
from tf_transformer.data.corpus import read_lines
from tf_transformer.errors import UserError, quoted
from tf_transformer.serving.versions import check_readable, find_export

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add_translator_options(parser, shortlist=True, tag=True)
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
    gate = parser.add_argument_group("a gate: nothing is published, and the status is 3, if")
    text = "it translates significantly worse than this export"
    gate.add_argument("--better-than", metavar="SAVEDMODEL", help=text)
    gate.add_argument("--source", metavar="FILE", help="on this dev text")
    gate.add_argument("--reference", metavar="FILE", help="with these translations")
    points = float_from(0.0, 100.0)
    text = "and loses more points of BLEU (default: 0)"
    gate.add_argument("--margin", type=points, default=0.0, metavar="BLEU", help=text)


def command(options: argparse.Namespace) -> None:
    """Writes DIR/VERSION/, a SavedModel that takes strings and returns translations.

    The written files are first tested against the Python translator; see
    docs/guides/exporting.md.
    """
    output = Path(options.output)
    check_readable(output)
    run = open_run(options.run)
    decoding = decoding_config(options, run)
    if options.tag and options.no_text:
        raise UserError("--tag is for a model that takes text. Received: --no-text as well.")
    average = _average(options)
    compared = _compared(options)
    if average is None:
        run.weights(options.checkpoint)  # before TensorFlow is imported
    import_tensorflow_quietly()

    from tf_transformer.api.export import export_run
    from tf_transformer.serving.gate import Gate

    gate = Gate(*compared, margin=options.margin) if compared else None
    path = export_run(
        run,
        output,
        checkpoint=options.checkpoint,
        average=average,
        decoding=decoding,
        precision=options.precision,
        shortlist=options.shortlist,
        tag=options.tag,
        text=not options.no_text,
        version=options.version,
        gate=gate,
    )
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    logger.info("exported %s (%.1f MB)", path, size / 1e6)


def _compared(options: argparse.Namespace) -> tuple[Path, list[str], list[str]] | None:
    """Returns the published model to compare with, the text for it, and its translations."""
    files = [name for name in (options.source, options.reference) if name]
    if options.better_than is None and not files and not options.margin:
        return None
    if options.better_than is None or len(files) < 2 or options.no_text:
        raise UserError(
            "--better-than, --source and --reference belong together, and are for a model that "
            f"takes text. Received: {options.better_than}, {options.source}, "
            f"{options.reference}{', --no-text' if options.no_text else ''}."
        )
    published = find_export(Path(options.better_than))
    if published is None:
        raise UserError(f"--better-than must be an export. Received: {options.better_than}.")
    sources, references = (list(read_lines(Path(name))) for name in files)
    require_equal_lengths(options.source, sources, options.reference, references)
    return published, sources, references


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
