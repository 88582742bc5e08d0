"""`python export.py RUN --output DIR`: a SavedModel for TF Serving."""

import argparse
import logging
from pathlib import Path

from tf_transformer.cli.options import add_decoding_options, add_run_options, load_translator

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Writes DIR/VERSION/, a SavedModel that takes strings and returns translations, after "
    "testing it against the Python translator."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_options(parser)
    add_decoding_options(parser)
    parser.add_argument("--output", required=True, metavar="DIR", help="the model's folder")
    parser.add_argument(
        "--version", type=int, metavar="N", help="its number (default: the next free one)"
    )


def command(options: argparse.Namespace) -> None:
    translator = load_translator(options)

    from tf_transformer.serving import export

    path = export(translator, Path(options.output), options.version)
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file())
    logger.info("exported %s (%.1f MB), signature serving_default", path, size / 1e6)
