"""`tf-transformer ablate`: rows of the paper's Table 3, trained at a smaller scale."""

import argparse
import logging
from pathlib import Path

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.parser import given_except, int_from, value_of
from tf_transformer.cli.terminal import print_report
from tf_transformer.cli.training_options import (
    add_training_options,
    given_settings,
    seconds_of,
)
from tf_transformer.errors import UserError
from tf_transformer.studies.ablation import table
from tf_transformer.studies.ablation.rows import BASE, ROWS, Scale, plan_rows, select_rows
from tf_transformer.studies.ablation.training import train_rows
from tf_transformer.tables import MARKDOWN
from tf_transformer.training.in_turn import DONE, FAILED, STOPPED

logger = logging.getLogger(__name__)

_FOR_PARAMETERS = ("params_only", "rows", "scale", "set")  # options that affect --params-only


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the command's arguments."""
    add = parser.add_argument
    rows = f"rows to train: {', '.join(ROWS)}, or a letter for all of its rows (default: all)"
    add("--rows", nargs="+", action="extend", default=[], metavar="ROW", help=rows)
    scale = "paper (default), or a number that divides widths, steps and warm-up"
    add("--scale", type=_divisor, default=1, metavar="N", help=scale)
    steps = "steps of base (default: 100,000 / scale); big, warm-up and evaluations follow"
    add("--steps", type=value_of("training.steps"), metavar="N", help=steps)
    seed = value_of("training.seed")
    seeds = "seeds with which to train each row (default: 1)"
    add("--seeds", type=seed, nargs="+", action="extend", metavar="SEED", help=seeds)
    add("--output", metavar="DIR", help="folder of the runs (default: runs/ablate-N)")
    only = parser.add_mutually_exclusive_group()
    parameters = "print the rows' parameters beside the paper's; needs no data"
    only.add_argument("--params-only", action="store_true", help=parameters)
    only.add_argument("--table", action="store_true", help="print the results so far")
    add_training_options(parser)


def _divisor(text: str) -> int:
    return 1 if text == "paper" else int_from(1, 512)(text)


def command(options: argparse.Namespace) -> int:
    """Trains rows of the paper's Table 3, scaled down, and prints them beside the paper's.

    Run the same command again to resume; finished rows are not trained again.
    """
    output = Path(options.output or f"runs/ablate-{options.scale}")
    if options.table:
        if others := given_except(options, "table", "output", "scale"):
            raise UserError(f"--table prints every result in {output}: leave out {others}.")
        print_report(*table.write_report(output), style=MARKDOWN)
        return DONE
    if options.params_only and (others := given_except(options, *_FOR_PARAMETERS)):
        raise UserError(f"--params-only trains nothing: leave out {others}.")
    scale = Scale.of(options.scale, options.steps)
    rows = select_rows(options.rows)
    configs = plan_rows(
        [BASE, *(row for row in rows if row != BASE)],
        scale,
        given_settings(options),
        options.set,
    )
    if options.params_only:
        print_report(table.parameters_table(configs), table.PARAMETERS_NOTE, style=MARKDOWN)
        return DONE
    seconds = seconds_of(options.stop_after, "ablate")
    more = ["--devices", str(options.devices)] if options.devices is not None else []
    more += ["--traceback"] if options.traceback else []
    import_tensorflow_quietly()
    status = train_rows(
        configs,
        rows,
        output,
        seeds=options.seeds or [1],
        seconds=seconds,
        more=more,
    )
    if status not in (DONE, FAILED):
        logger.info("run the same command again to resume")
        return DONE if status == STOPPED else status
    print_report(*table.write_report(output), style=MARKDOWN)
    return status
