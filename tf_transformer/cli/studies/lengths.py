"""`tf-transformer lengths RUN...`: BLEU by source length, also beyond the training lengths."""

import argparse
import logging
from pathlib import Path

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.lines import read_some_pairs
from tf_transformer.cli.options import (
    add_decoding_options,
    add_shared_options,
    decoding_config,
    open_run,
    picture,
    require_writable,
)
from tf_transformer.cli.parser import int_from
from tf_transformer.cli.terminal import print_report
from tf_transformer.decoding.threads import use_threads
from tf_transformer.errors import UserError
from tf_transformer.files import write_text
from tf_transformer.plots.figure import save

logger = logging.getLogger(__name__)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run directories")
    add_shared_options(parser, "--checkpoint")
    add_decoding_options(parser)
    add_shared_options(parser, "--tag")
    add("--source", metavar="FILE", required=True, help="text to translate")
    add("--reference", metavar="FILE", required=True, help="its translations")
    width = "width of a length bucket, in pieces (default: 8)"
    add("--width", type=int_from(1), default=8, metavar="N", help=width)
    least = "minimum sentences per bucket; smaller ones join the next (default: 20)"
    add("--least", type=int_from(1), default=20, metavar="N", help=least)
    output = "picture to write, .png, .svg or .pdf (default: lengths.png)"
    add("--output", default="lengths.png", metavar="FILE", help=output)
    add("--data", metavar="FILE", help="write the figures as JSON")


def command(options: argparse.Namespace) -> None:
    """Translates a test set with one or more runs and draws BLEU against source length.

    Lengths beyond those seen in training are marked.
    """
    path = picture(options.output)
    runs = [open_run(name) for name in options.runs]
    for run in runs:
        run.weights(options.checkpoint)
    decodings = [decoding_config(options, run) for run in runs]
    if options.data:
        require_writable("--data", Path(options.data))
    sources, references = _read_pairs(options.source, options.reference)
    import_tensorflow_quietly()
    use_threads()

    from tf_transformer.studies.lengths import lengths_figure, lengths_table, measure, to_json

    groups, curves = measure(
        runs,
        sources,
        references,
        decodings=decodings,
        checkpoint=options.checkpoint,
        tag=options.tag,
        width=options.width,
        least=options.least,
    )
    if options.data:
        text = to_json(options.source, options.reference, groups, curves)
        write_text(Path(options.data), text)
        logger.info("%s", options.data)
    save(lengths_figure(groups, curves), path)
    logger.info("%s", path)
    lines = [
        f"{curve.label}: trained up to {curve.reach}, cuts at {curve.limit:,} pieces"
        for curve in curves
    ]
    print_report("\n".join(lines), lengths_table(groups, curves))


def _read_pairs(source: str, reference: str) -> tuple[list[str], list[str]]:
    """Reads sources and references; raises UserError for no pairs or a blank reference."""
    pairs = read_some_pairs(source, reference)
    for number, (_, text) in enumerate(pairs, start=1):
        if not text.strip():
            raise UserError(
                f"{reference}:{number}: a reference must have a word. Received: a blank line."
            )
    sources, references = zip(*pairs, strict=True)
    return list(sources), list(references)
