"""`tf-transformer ablate`: the rows of the paper's Table 3, trained at a scale, as a table."""

import argparse
import itertools
import logging
import os
import time
from pathlib import Path

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.core.train import add_training_options, given_values
from tf_transformer.cli.parser import int_from, value_of
from tf_transformer.cli.row_process import BY_SIGNAL, DONE, FAILED, STOPPED, train_in_process
from tf_transformer.config import Config
from tf_transformer.errors import UserError, quoted
from tf_transformer.files import locked, write_text
from tf_transformer.run import Run
from tf_transformer.studies.ablation.folder import begin_folder, check_folder, read_settings
from tf_transformer.studies.ablation.plot import draw_differences
from tf_transformer.studies.ablation.results import (
    RESULT_FILE,
    read_results,
    run_folder,
    write_result,
)
from tf_transformer.studies.ablation.rows import (
    BASE,
    ROWS,
    Scale,
    change,
    plan_rows,
    select_rows,
)
from tf_transformer.studies.ablation.table import (
    PARAMETERS_NOTE,
    caption,
    compare,
    differences,
    parameters_table,
    results_table,
)
from tf_transformer.studies.run_card import try_to_write_card
from tf_transformer.training.interruption import Budget

logger = logging.getLogger(__name__)

DESCRIPTION = (
    "Trains rows of the paper's Table 3 at a scale and prints them beside the paper's; run the "
    "same command again to go on. Rows that have a result are not trained again."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--rows",
        nargs="+",
        default=(),
        metavar="ROW",
        help=f"of {', '.join(ROWS)}, or a letter for all its rows (default: all)",
    )
    parser.add_argument(
        "--scale",
        type=_divisor,
        default=1,
        metavar="N",
        help="paper (default), or a number that divides widths, steps and warm-up",
    )
    parser.add_argument(
        "--steps",
        type=value_of("training.steps"),
        metavar="N",
        help="of base, instead of 100,000 / scale; warm-up, evaluations and big in proportion",
    )
    parser.add_argument(
        "--seeds",
        type=value_of("training.seed"),
        nargs="+",
        default=[1],
        metavar="SEED",
        help="default: 1",
    )
    parser.add_argument("--output", metavar="DIR", help="default: runs/ablate-N")
    only = parser.add_mutually_exclusive_group()
    only.add_argument(
        "--params-only",
        action="store_true",
        help="print the rows' parameters beside the paper's; needs no data",
    )
    only.add_argument(
        "--table", action="store_true", help="print the table of the results there are"
    )
    add_training_options(parser)


def _divisor(text: str) -> int:
    return 1 if text == "paper" else int_from(1, 512)(text)


def command(options: argparse.Namespace) -> int:
    output = Path(options.output or f"runs/ablate-{options.scale}")
    if options.table:
        _print_table(output)
        return 0
    scale = Scale.of(options.scale, options.steps)
    rows = select_rows(options.rows)
    wanted = [BASE, *(row for row in rows if row != BASE)]
    configs = plan_rows(wanted, scale, given_values(options), options.set)
    if options.params_only:
        print(parameters_table(configs) + PARAMETERS_NOTE)
        return 0
    _seconds(options)
    import_tensorflow_quietly()
    _check(output, configs, options.seeds)
    with locked(output):
        configs = _prepare(output, configs)
        status = _train_rows(
            output, {row: configs[row] for row in rows}, configs[BASE], options
        )
    if status not in (DONE, FAILED):
        logger.info("the same command goes on from here")
        return 0 if status == STOPPED else status
    _print_table(output)
    return status


def _seconds(options: argparse.Namespace) -> float:
    """The time of --stop-after; 0 without one."""
    if not options.stop_after:
        return 0.0
    budget = Budget.parse(options.stop_after)
    if budget.steps:
        raise UserError(
            "ablate stops after a time, such as --stop-after 2h. "
            f"Received: {quoted(options.stop_after)}."
        )
    return budget.seconds


def _prepare(output: Path, configs: dict[str, Config]) -> dict[str, Config]:
    """Makes the tokenizer and the tokenised corpus of all rows.

    Returns:
        The configurations, with this tokenizer.
    """
    import tensorflow as tf

    from tf_transformer.cli.progress import Progress
    from tf_transformer.tasks.translation.task import TranslationTask

    tf.config.set_visible_devices([], "GPU")  # the rows' processes need all of it
    base = configs[BASE]
    with Progress() as progress:
        task = TranslationTask(begin_folder(output, base), progress)
    logger.info("%s", task.describe())
    tokenizer = base.data.tokenizer or str(output / "tokenizer.model")
    shared = {
        "data.tokenizer": tokenizer,
        "data.normalization": None,  # which the tokenizer holds, as the coverage
        "data.character_coverage": 1.0,
        "model.vocab_size": task.tokenizer.vocab_size,
    }
    return {row: config.replace(shared) for row, config in configs.items()}


def _check(output: Path, configs: dict[str, Config], seeds: list[int]) -> None:
    """Refuses what cannot be trained, and a folder that is not for these rows."""
    from tf_transformer.tasks.translation.task import check_config

    if "TF_CONFIG" in os.environ:
        raise UserError("ablate trains on one machine: run it without TF_CONFIG.")
    check_folder(output, configs[BASE])
    for config in {config.model.positions: config for config in configs.values()}.values():
        check_config(config)  # which reads all of the data: once for all rows alike
    for seed in seeds:
        configs[BASE].replace({"training.seed": seed})


def _train_rows(
    output: Path, configs: dict[str, Config], base: Config, options: argparse.Namespace
) -> int:
    """Trains what has no result yet, seed after seed.

    Returns:
        DONE; FAILED if a row did, which does not stop the others; else what stopped them.
    """
    status, limit, began = DONE, _seconds(options), time.monotonic()
    for seed, (row, config) in itertools.product(options.seeds, configs.items()):
        folder = run_folder(output, row, seed)
        if (folder / RESULT_FILE).exists():
            continue
        left = limit - (time.monotonic() - began)
        if limit and left <= 0:
            return STOPPED
        logger.info("\n%s", folder)
        ended = _train_row(folder, config.replace({"training.seed": seed}), options, left)
        if ended == DONE:
            run = Run.open(folder)
            write_result(run, row, change(config, base))
            try_to_write_card(run)
        elif ended in (STOPPED, *BY_SIGNAL):
            return ended
        else:
            logger.error("row %s, seed %d failed, with status %d", row, seed, ended)
            status = FAILED
    return status


def _train_row(
    folder: Path, config: Config, options: argparse.Namespace, seconds: float
) -> int:
    """An ordinary run that reads the tokenised corpus of all rows; how it ended."""
    try:
        run = Run.create_or_resume(folder, config)
    except UserError as error:
        logger.error("error: %s", error)
        return FAILED
    if not run.data.is_symlink():
        run.data.symlink_to(Path("..") / "data")
    return train_in_process(folder, options.devices, seconds if options.stop_after else 0.0)


def _print_table(output: Path) -> None:
    """Prints the results there are, and draws them if base is among them."""
    base, results = read_settings(output), read_results(output)
    if not results:
        raise UserError(f"No row in {output} has a result yet.")
    rows = compare(results)
    table = f"{caption(base, results)}\n\n{results_table(rows)}"
    print(f"\n{table}", end="")
    write_text(output / "table3.md", table)
    panels = differences(rows)
    if panels:
        for suffix in ("png", "svg"):
            draw_differences(panels, output / f"table3.{suffix}")
