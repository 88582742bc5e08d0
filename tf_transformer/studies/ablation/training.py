"""The training of the rows: ordinary runs that share a tokenizer and a tokenised corpus."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.files import locked, write_text
from tf_transformer.output import ProgressBars
from tf_transformer.run import Run, holds_other_files
from tf_transformer.run.run import differences
from tf_transformer.studies.ablation.rows import BASE, ROWS
from tf_transformer.tasks.registry import check_training, task_named
from tf_transformer.training.sessions import is_finished, train_in_turn

logger = logging.getLogger(__name__)

SETTINGS_FILE = "base.json"
# Settings that may change between sessions, since results do not depend on them.
_CHANGEABLE = ("training.max_tokens_per_device", "training.save_minutes")


def train_rows(
    configs: Mapping[str, Config],
    rows: Sequence[str],
    output: Path,
    *,
    seeds: Sequence[int] = (1,),
    seconds: float = 0.0,
    more: Sequence[str] = (),
) -> int:
    """Trains rows that are not finished, as runs in OUTPUT/ROW-seedN, seed after seed.

    Args:
        configs: the configurations of base and of `rows`, from `rows.plan_rows`.
        rows: the rows to train.
        output: the folder.
        seeds: the seeds of each row.
        seconds: limit of time; 0 for none.
        more: further arguments of `tf-transformer train`.

    Returns:
        The status of `train_in_turn`.

    Raises:
        UserError: if a configuration cannot be trained, or the folder has other content.
    """
    from tf_transformer.tasks.sequences import sized

    configs = {**configs, BASE: sized(configs[BASE])}
    _check(configs, output, seeds)
    with locked(output):
        shared = _share_text(output, configs[BASE])
        runs = {
            run_folder(output, row, seed): configs[row].replace(
                {**shared, "training.seed": seed}
            )
            for seed in seeds
            for row in rows
        }
        return train_in_turn(runs, lambda *run: [*_begun(*run), *more], seconds)


def _begun(folder: Path, config: Config) -> list[str]:
    """Creates the run of a row on the shared corpus; returns its arguments of `train`."""
    run = Run.create_or_resume(folder, config)
    if not run.data.is_symlink():
        run.data.symlink_to(Path("..") / "data")
    return ["--config", str(folder / "config.json")]


def _check(configs: Mapping[str, Config], output: Path, seeds: Sequence[int]) -> None:
    """Refuses configurations that cannot be trained, and a folder with other content."""
    if "TF_CONFIG" in os.environ:
        raise UserError("ablate trains on one machine: run it without TF_CONFIG.")
    check_folder(output, configs[BASE])
    for config in {config.model.positions: config for config in configs.values()}.values():
        check_training(config)  # reads all of the data, so once per kind of positions
    for seed in seeds:
        configs[BASE].replace({"training.seed": seed})


def check_folder(output: Path, base: Config) -> None:
    """Checks that a folder can hold an ablation of `base`; writes nothing.

    Raises:
        UserError: if it has other files or rows with other settings, or cannot be read.
    """
    if not (output / SETTINGS_FILE).exists():
        if holds_other_files(output):
            raise UserError(
                f"{output} exists but was not created by `tf-transformer ablate`. Give "
                "--output a new folder."
            )
        return
    changes = differences(read_settings(output), base, _CHANGEABLE.__contains__)
    if changes and _has_rows(output):
        raise UserError(
            f"{output} has rows with other settings: {'; '.join(changes)}. Use the same "
            "settings to resume, or another --output."
        )


def _share_text(output: Path, base: Config) -> dict[str, object]:
    """Creates the tokenizer and the tokenised corpus of all rows; returns their settings."""
    import tensorflow as tf

    tf.config.set_visible_devices([], "GPU")  # leaves it to the rows' processes
    with ProgressBars() as progress:
        run = begin_folder(output, base)
        task = task_named(base.task).task_class()(run, progress)
    logger.info("%s", task.describe())
    return {
        "data.tokenizer": base.data.tokenizer or str(output / "tokenizer.model"),
        "data.normalization": None,  # stored in the tokenizer, like the coverage
        "data.character_coverage": 1.0,
        "model.vocab_size": task.tokenizer.vocab_size,
    }


def begin_folder(output: Path, base: Config) -> Run:
    """Returns the run for the tokenizer and tokenised corpus that all rows share.

    Deletes an existing tokenizer if there are no rows yet, since it may come from mistaken
    settings. Call `check_folder` first.
    """
    run = Run(output, base)
    if not _has_rows(output):
        run.discard_tokenizer()
    write_text(output / SETTINGS_FILE, base.to_json())
    return run


def read_settings(output: Path) -> Config:
    """Returns the configuration of base, from which all rows in a folder derive."""
    try:
        return Config.from_json((output / SETTINGS_FILE).read_text("utf-8"))
    except OSError:
        raise UserError(
            f"{output} has no results yet. Expected the --output of an earlier `ablate`."
        ) from None


def finished_runs(output: Path) -> dict[str, list[Run]]:
    """Returns the finished runs by row, in the order of the paper, then by seed."""
    runs: dict[str, list[Run]] = {}
    for row in ROWS:
        folders = [file.parent for file in output.glob(f"{row}-seed*/config.json")]
        opened = sorted(map(Run.open, folders), key=lambda run: run.config.training.seed)
        if done := [run for run in opened if is_finished(run.path, run.config.training.steps)]:
            runs[row] = done
    return runs


def run_folder(output: Path, row: str, seed: int) -> Path:
    """Returns the run directory of a row."""
    return output / f"{row}-seed{seed}"


def _has_rows(output: Path) -> bool:
    return any(output.glob("*-seed*"))
