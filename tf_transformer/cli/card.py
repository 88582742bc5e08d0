"""The command `card`."""

import argparse

from tf_transformer.base.output import MARKDOWN
from tf_transformer.cli.console import print_report
from tf_transformer.cli.options import RUN_HELP
from tf_transformer.cli.parser import float_from
from tf_transformer.reports.cost import SUSTAINED_TFLOPS
from tf_transformer.run import Run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `card`."""
    parser.add_argument("run", metavar="RUN", help=RUN_HELP)
    rate = parser.add_mutually_exclusive_group()
    text = "also estimate FLOPs as time x devices x this sustained rate of a device, in TFLOP/s"
    rate.add_argument("--sustained-tflops", type=float_from(1e-6, 1e6), metavar="X", help=text)
    text = "also estimate FLOPs at the rate that the paper assumes for this GPU"
    rate.add_argument("--gpu", choices=[*SUSTAINED_TFLOPS], help=text)


def run(options: argparse.Namespace) -> None:
    """Writes RUN/card.md and prints it, even during training.

    The card describes the model, its departures from the paper, data with hashes, dev scores
    with their signature, the cost beside the paper's Table 2, and versions.
    """
    from tf_transformer.reports.run_card import write_run_card

    run = Run.open(options.run)
    rate = SUSTAINED_TFLOPS[options.gpu] if options.gpu else options.sustained_tflops
    print_report(*write_run_card(run, rate), style=MARKDOWN)
