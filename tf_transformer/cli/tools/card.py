"""`tf-transformer card RUN`: the settings, scores and cost of a run, in Markdown."""

import argparse

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.options import RUN_HELP, open_run
from tf_transformer.cli.parser import float_from
from tf_transformer.cli.terminal import print_report
from tf_transformer.studies.cost import sustained_rate
from tf_transformer.studies.run_card import write_card
from tf_transformer.tables import MARKDOWN


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    rate = parser.add_mutually_exclusive_group()
    text = "also estimate FLOPs as time x devices x this sustained rate of a device, in TFLOP/s"
    rate.add_argument("--sustained-tflops", type=float_from(1e-6, 1e6), metavar="X", help=text)
    text = "also estimate FLOPs at the rate that the paper assumes for a K80, K40, M40 or P100"
    rate.add_argument("--gpu", metavar="NAME", help=text)


def command(options: argparse.Namespace) -> None:
    """Writes RUN/card.md and prints it, even during training.

    The card describes the model, its departures from the paper, data with hashes, dev scores
    with their signature, the cost beside the paper's Table 2, and versions.
    """
    run = open_run(options.run, None)
    rate = sustained_rate(options.gpu, options.sustained_tflops)
    import_tensorflow_quietly()  # for the tokenised corpus
    print_report(*write_card(run, rate), style=MARKDOWN)
