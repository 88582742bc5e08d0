"""The command `ablate`."""

import argparse
import logging
from pathlib import Path

from tf_transformer.base.output import MARKDOWN
from tf_transformer.cli.console import print_report
from tf_transformer.cli.parser import int_from, value_of
from tf_transformer.cli.training_options import (
    add_training_options,
    given_settings,
    options_of_rows,
    seconds_of,
)
from tf_transformer.paper.ablation import (
    ROWS,
    parameters_table,
    plan_rows,
    select_rows,
    train_rows,
    write_report,
)
from tf_transformer.training.sessions import DONE, FAILED, STOPPED

logger = logging.getLogger(__name__)


def add_ablate(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `ablate`."""
    add = parser.add_argument
    rows = f"rows to train: {', '.join(ROWS)}, or a letter for all of its rows (default: all)"
    add("--rows", nargs="+", action="extend", default=[], metavar="ROW", help=rows)
    scale = "divisor of widths, steps and warm-up (default: 1, as in the paper)"
    add("--scale", type=int_from(1, 512), default=1, metavar="N", help=scale)
    steps = "steps of base (default: 100,000 / scale); big, warm-up and evaluations follow"
    add("--steps", type=value_of("training.steps"), metavar="N", help=steps)
    seed = value_of("training.seed")
    seeds = "seeds with which to train each row (default: 1)"
    add("--seeds", type=seed, nargs="+", action="extend", metavar="SEED", help=seeds)
    add("--output", metavar="DIR", help="folder of the runs (default: runs/ablate-N)")
    parameters = "print the rows' parameters beside the paper's; needs no data"
    add("--params-only", action="store_true", help=parameters)
    add("--table", action="store_true", help="print the results so far")
    add_training_options(parser)


def run_ablate(options: argparse.Namespace) -> int:
    """Trains rows of the paper's Table 3, scaled down, and prints them beside the paper's.

    Run the same command again to resume; finished rows are not trained again.
    """
    output = Path(options.output or f"runs/ablate-{options.scale}")
    if options.table:
        print_report(*write_report(output), style=MARKDOWN)
        return DONE
    rows = select_rows(options.rows)
    configs = plan_rows(
        rows, options.scale, options.steps, given_settings(options), options.set
    )
    if options.params_only:
        print_report(parameters_table(configs), style=MARKDOWN)
        return DONE
    seconds = seconds_of(options.stop_after, "ablate")
    status = train_rows(
        configs,
        rows,
        output,
        seeds=options.seeds or [1],
        seconds=seconds,
        more=options_of_rows(options),
    )
    if status not in (DONE, FAILED):
        logger.info("run the same command again to resume")
        return DONE if status == STOPPED else status
    print_report(*write_report(output), style=MARKDOWN)
    return status
