"""The command `lengths`."""

import argparse
import logging

from tf_transformer.base.errors import UserError
from tf_transformer.cli.console import import_tensorflow_quietly, print_report
from tf_transformer.cli.options import (
    add_model_options,
    add_search_options,
    decoding_config,
    open_run,
    picture,
)
from tf_transformer.cli.parser import int_from
from tf_transformer.data.text import read_some_pairs
from tf_transformer.decoding.streams import use_threads
from tf_transformer.plots import save

logger = logging.getLogger(__name__)


def add_lengths(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `lengths`."""
    add = parser.add_argument
    add("runs", nargs="+", metavar="RUN", help="run directories")
    add("--source", metavar="FILE", required=True, help="text to translate")
    add("--reference", metavar="FILE", required=True, help="its translations")
    width = "width of a length bucket, in pieces (default: 8)"
    add("--width", type=int_from(1), default=8, metavar="N", help=width)
    least = "minimum sentences per bucket; smaller ones join the next (default: 20)"
    add("--least", type=int_from(1), default=20, metavar="N", help=least)
    output = "picture to write, .png, .svg or .pdf (default: lengths.png)"
    add("--output", default="lengths.png", metavar="FILE", help=output)
    add_model_options(parser, "--checkpoint", "--tag")
    add_search_options(parser)


def run_lengths(options: argparse.Namespace) -> None:
    """Translates a test set with one or more runs and draws BLEU against source length.

    Lengths beyond those seen in training are marked.
    """
    path = picture(options.output)
    runs = [open_run(name) for name in options.runs]
    for run in runs:
        run.weights(options.checkpoint)
    decodings = [decoding_config(options, run) for run in runs]
    pairs = read_some_pairs(options.source, options.reference)
    for number, (_, text) in enumerate(pairs, start=1):
        if not text.strip():
            raise UserError(
                f"{options.reference}:{number}: a reference must have a word. Received: a "
                "blank line."
            )
    import_tensorflow_quietly()
    use_threads()

    from tf_transformer.paper.lengths import lengths_figure, lengths_table, measure_lengths

    groups, curves = measure_lengths(
        runs,
        [source for source, _ in pairs],
        [reference for _, reference in pairs],
        decodings=decodings,
        checkpoint=options.checkpoint,
        tag=options.tag,
        width=options.width,
        least=options.least,
    )
    save(lengths_figure(groups, curves), path)
    logger.info("%s", path)
    lines = [
        f"{curve.label}: trained {curve.reach}, cuts at {curve.limit:,} pieces"
        for curve in curves
    ]
    print_report("\n".join(lines), lengths_table(groups, curves))
