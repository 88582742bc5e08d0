"""`tf-transformer ablate`: rows of the paper's Table 3, trained at a smaller scale."""

import argparse
import itertools
import logging
import os
import time
from pathlib import Path

from tf_transformer.cli.console import import_tensorflow_quietly
from tf_transformer.cli.parser import given_except, int_from, value_of
from tf_transformer.cli.row_process import BY_SIGNAL, DONE, FAILED, STOPPED, train_in_process
from tf_transformer.cli.terminal import print_report
from tf_transformer.cli.training_options import (
    add_training_options,
    seconds_of,
    settings_of,
)
from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.files import locked, write_text
from tf_transformer.progress import ProgressBars
from tf_transformer.run import Run
from tf_transformer.studies.ablation import results, table
from tf_transformer.studies.ablation.rows import (
    BASE,
    ROWS,
    Scale,
    change,
    plan_rows,
    select_rows,
)
from tf_transformer.studies.run_card import try_to_write_card
from tf_transformer.tables import MARKDOWN, Part, joined

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

    Run the same command again to resume; rows with a result are not trained again.
    """
    output = Path(options.output or f"runs/ablate-{options.scale}")
    if options.table:
        if others := given_except(options, "table", "output", "scale"):
            raise UserError(f"--table prints every result in {output}: leave out {others}.")
        _print_table(output)
        return DONE
    if options.params_only and (others := given_except(options, *_FOR_PARAMETERS)):
        raise UserError(f"--params-only trains nothing: leave out {others}.")
    scale = Scale.of(options.scale, options.steps)
    rows = select_rows(options.rows)
    configs = plan_rows(
        [BASE, *(row for row in rows if row != BASE)], scale, settings_of(options), options.set
    )
    if options.params_only:
        print_report(table.parameters_table(configs), table.PARAMETERS_NOTE, style=MARKDOWN)
        return DONE
    seconds = seconds_of(options.stop_after, "ablate")
    import_tensorflow_quietly()
    options.seeds = options.seeds or [1]

    from tf_transformer.tasks.tokenizers import sized

    configs |= {BASE: sized(configs[BASE])}  # the other rows get it from `_prepare`
    _check(output, configs, options.seeds)
    with locked(output):
        configs = _prepare(output, configs)
        base, configs = configs[BASE], {row: configs[row] for row in rows}
        status = _train_rows(output, configs, base, options, seconds)
    if status not in (DONE, FAILED):
        logger.info("run the same command again to resume")
        return DONE if status == STOPPED else status
    _print_table(output)
    return status


def _check(output: Path, configs: dict[str, Config], seeds: list[int]) -> None:
    """Refuses configurations that cannot be trained, and a folder with other content."""
    from tf_transformer.tasks.translation.task import check_config

    if "TF_CONFIG" in os.environ:
        raise UserError("ablate trains on one machine: run it without TF_CONFIG.")
    results.check_folder(output, configs[BASE])
    for config in {config.model.positions: config for config in configs.values()}.values():
        check_config(config)  # reads all of the data, so once per kind of positions
    for seed in seeds:
        configs[BASE].replace({"training.seed": seed})


def _prepare(output: Path, configs: dict[str, Config]) -> dict[str, Config]:
    """Creates the tokenizer and the tokenised corpus that all rows share.

    Returns:
        The configurations, with this tokenizer.
    """
    import tensorflow as tf

    from tf_transformer.tasks.translation.task import TranslationTask

    tf.config.set_visible_devices([], "GPU")  # leaves it to the rows' processes
    base = configs[BASE]
    with ProgressBars() as progress:
        task = TranslationTask(results.begin_folder(output, base), progress)
    logger.info("%s", task.describe())
    shared = {
        "data.tokenizer": base.data.tokenizer or str(output / "tokenizer.model"),
        "data.normalization": None,  # stored in the tokenizer, like the coverage
        "data.character_coverage": 1.0,
        "model.vocab_size": task.tokenizer.vocab_size,
    }
    return {row: config.replace(shared) for row, config in configs.items()}


def _train_rows(
    output: Path,
    configs: dict[str, Config],
    base: Config,
    options: argparse.Namespace,
    limit: float,
) -> int:
    """Trains all rows without a result, seed after seed, for `limit` seconds (0: no limit).

    Returns:
        DONE; FAILED if a row failed, which does not stop the others; otherwise the status of
        the row that was stopped.
    """
    status, began = DONE, time.monotonic()
    for seed, (row, config) in itertools.product(options.seeds, configs.items()):
        folder = results.run_folder(output, row, seed)
        if (folder / results.RESULT_FILE).exists():
            continue
        seconds = limit - (time.monotonic() - began) if limit else 0.0
        if limit and seconds <= 0:
            return STOPPED
        logger.info("\n%s", folder)
        ended = _train_row(folder, config.replace({"training.seed": seed}), options, seconds)
        if ended == DONE:
            run = Run.open(folder)
            results.write_result(run, row, change(config, base))
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
    """Trains a row as an ordinary run on the shared corpus; returns its status."""
    try:
        run = Run.create_or_resume(folder, config)
    except UserError as error:
        logger.error("error: %s", error)
        return FAILED
    if not run.data.is_symlink():
        run.data.symlink_to(Path("..") / "data")
    return train_in_process(folder, options.devices, seconds, options.traceback)


def _print_table(output: Path) -> None:
    """Prints the existing results and, if base is among them, draws them."""
    base, by_row = results.read_settings(output), results.read_results(output)
    if not by_row:
        raise UserError(f"No row in {output} has a result yet.")
    rows = table.compare(by_row)
    report: list[Part] = [table.caption(base, by_row), table.results_table(rows)]
    print_report(*report, style=MARKDOWN)
    write_text(output / "table3.md", joined(report, MARKDOWN))
    if panels := table.differences(rows):
        for suffix in ("png", "svg"):
            table.draw_differences(panels, output / f"table3.{suffix}")
