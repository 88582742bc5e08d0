"""Training with several seeds: one run per seed, each in a separate process, and a summary."""

import argparse
import logging
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tf_transformer.cli.parser import value_of
from tf_transformer.cli.row_process import Relay
from tf_transformer.cli.terminal import print_report
from tf_transformer.cli.training_options import seconds_of
from tf_transformer.config import Config
from tf_transformer.errors import UserError, quoted
from tf_transformer.evaluation.comparison import Spread
from tf_transformer.files import write_text
from tf_transformer.run import Run, holds_other_files
from tf_transformer.run.facts import evaluation_of
from tf_transformer.run.records import differences
from tf_transformer.tables import MARKDOWN, Table, joined
from tf_transformer.training.selection import what_is_unfinished

logger = logging.getLogger(__name__)

SETTINGS_FILE, TABLE_FILE = "seeds.json", "seeds.md"


def seeds_from(text: str) -> list[int]:
    """Reads a list such as "1,2,3"; an argument `type`."""
    seeds = [value_of("training.seed")(seed) for seed in text.split(",")]
    if len(set(seeds)) < max(2, len(seeds)):
        raise argparse.ArgumentTypeError(
            f"must be different seeds such as 1,2,3. Received: {quoted(text)}."
        )
    return seeds


def train_seeds(options: argparse.Namespace, config: Config, output: Path) -> int:
    """Trains the unfinished seeds, one after the other, and prints the scores of all.

    Args:
        options: the options of `train`.
        config: the configuration that they describe.
        output: folder of the runs, seed-1 and so on.

    Returns:
        0, or the status of the first training that fails or is interrupted; later seeds are
        then not trained.

    Raises:
        UserError: if `output` contains something else, or an option excludes --seeds.
    """
    seconds = _check(options, config, output)
    began = time.monotonic()
    write_text(output / SETTINGS_FILE, config.to_json())
    runs = []
    for number, seed in enumerate(options.seeds, start=1):
        folder = output / f"seed-{seed}"
        logger.info("\n%s (%d of %d)", folder, number, len(options.seeds))
        left = seconds - (time.monotonic() - began)
        if not _is_finished(folder, config):
            if seconds and left <= 0:
                break
            with Relay() as relay:
                status = relay.run(_command(options, output, seed, left if seconds else 0))
            if status:
                return status
            if seconds and not _is_finished(folder, config):  # it ran out of time
                break
        runs.append(Run.open(folder))
    else:
        table = spread_table(runs)
        write_text(output / TABLE_FILE, joined([table], MARKDOWN))
        print_report(table, style=MARKDOWN)
        return 0
    logger.info("run the same command again to resume")
    return 0


def _is_finished(folder: Path, config: Config) -> bool:
    exists = (folder / "config.json").exists()
    return exists and not what_is_unfinished(Run.open(folder), config.training.steps)


def spread_table(runs: Sequence[Run]) -> Table:
    """Returns the dev scores of each run's best weights, with mean and standard deviation.

    Raises:
        UserError: if a run's record of these scores is lost.
    """
    records = [_scores(run) for run in runs]
    names = [name for name in records[0] if name.startswith("valid_")]
    header = ["seed", *(name.removeprefix("valid_") for name in names)]
    rows = [
        [str(run.config.training.seed), *(f"{record[name]:.4f}" for name in names)]
        for run, record in zip(runs, records, strict=True)
    ]
    spreads = [Spread.of([record[name] for record in records]) for name in names]
    rows.append(["mean", *(f"{spread.mean:.4f}" for spread in spreads)])
    rows.append(["deviation", *(f"{spread.deviation:.4f}" for spread in spreads)])
    return Table(header, rows)


def _scores(run: Run) -> dict[str, Any]:
    if record := evaluation_of(run, run.checkpoints.best):
        return record
    raise UserError(
        f"{run.path} must have the scores of its best weights, in best.npz or metrics.jsonl. "
        f"Received: neither. Restore one, or move {run.path} away to train this seed again."
    )


def _check(options: argparse.Namespace, config: Config, output: Path) -> float:
    """Refuses wrong options; returns --stop-after in seconds, 0 if absent."""
    if any(setting.partition("=")[0].strip() == "training.seed" for setting in options.set):
        raise UserError("Give --seeds or --set training.seed, not both.")
    if not (output / SETTINGS_FILE).exists() and holds_other_files(output):
        raise UserError(
            f"{output} exists but was not created by `train --seeds`. Give another --output."
        )
    if (file := output / SETTINGS_FILE).exists():
        before = Config.from_json(file.read_text("utf-8"))
        if wrong := differences(before, config, lambda name: name == "training.steps"):
            raise UserError(
                f"{output} holds runs with another configuration: {wrong[0]}. Give "
                "another --output."
            )
    return seconds_of(options.stop_after, "--seeds")


def _command(options: argparse.Namespace, output: Path, seed: int, seconds: float) -> list[str]:
    words = [sys.executable, "-m", "tf_transformer.cli.main", "train"]
    words += ["--config", str(output / SETTINGS_FILE), "--output", str(output / f"seed-{seed}")]
    for setting in (*options.set, f"training.seed={seed}"):
        words += ["--set", setting]
    words += ["--devices", str(options.devices)] if options.devices is not None else []
    words += ["--traceback"] if options.traceback else []
    words += ["--accept-new-data"] if options.accept_new_data else []
    words += ["--stop-after", f"{max(1, round(seconds))}s"] if seconds else []
    return words
