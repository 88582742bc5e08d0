"""Training with several seeds, and the mean and deviation of their scores."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import write_text
from tf_transformer.base.output import MARKDOWN, Table, joined
from tf_transformer.config import Config
from tf_transformer.evaluation import Spread
from tf_transformer.run import Run, require_created_by
from tf_transformer.run.run import differences, evaluation_of
from tf_transformer.training.sessions import DONE, train_in_turn

SETTINGS_FILE, TABLE_FILE = "seeds.json", "seeds.md"


def train_seeds(
    config: Config,
    output: Path,
    seeds: Sequence[int],
    *,
    seconds: float = 0.0,
    more: Sequence[str] = (),
) -> tuple[int, Table | None]:
    """Trains a run with each seed in OUTPUT/seed-N, and writes their scores to seeds.md.

    `seconds` limit the time unless 0, and `more` are arguments of `train`. Returns the status
    of `train_in_turn` and, if all seeds are trained, the table of scores. Raises UserError if
    `output` contains something else.
    """
    file = output / SETTINGS_FILE
    require_created_by("train --seeds", output, SETTINGS_FILE)
    if file.exists():
        before = Config.from_json(file.read_text("utf-8"))
        if wrong := differences(before, config, {"training.steps"}):
            raise UserError(
                f"{output} holds runs with another configuration: {wrong[0]}. Give "
                "another `output`."
            )
    write_text(file, config.to_json())

    def arguments(folder: Path, _: Config) -> list[str]:
        seed = folder.name.removeprefix("seed-")
        return ["--config", str(file), *more, "--set", f"training.seed={seed}"]

    folders = [output / f"seed-{seed}" for seed in seeds]
    status = train_in_turn(dict.fromkeys(folders, config), arguments, seconds)
    if status != DONE:
        return status, None
    table = spread_table([Run.open(folder) for folder in folders])
    write_text(output / TABLE_FILE, joined([table], MARKDOWN))
    return status, table


def spread_table(runs: Sequence[Run]) -> Table:
    """Returns the dev scores of each run's best weights, with mean and standard deviation.

    Raises UserError if a run's record of these scores is lost.
    """
    records = [_scores(run) for run in runs]
    names = [name for name in records[0] if name.startswith("valid_")]
    rows = [
        [str(run.config.training.seed), *(f"{record[name]:.4f}" for name in names)]
        for run, record in zip(runs, records, strict=True)
    ]
    spreads = [Spread.of([record[name] for record in records]) for name in names]
    rows.append(["mean", *(f"{spread.mean:.4f}" for spread in spreads)])
    rows.append(["deviation", *(f"{spread.deviation:.4f}" for spread in spreads)])
    return Table(["seed", *(name.removeprefix("valid_") for name in names)], rows, "lr")


def _scores(run: Run) -> dict[str, Any]:
    if record := evaluation_of(run, run.checkpoints.best):
        return record
    raise UserError(
        f"{run.path} must have the scores of its best weights, in best.npz or metrics.jsonl. "
        f"Received: neither. Restore one, or move {run.path} away to train this seed again."
    )
