"""Training with several seeds, and the mean and deviation of their scores."""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import write_text
from tf_transformer.base.output import MARKDOWN, Part, ProgressBars, Table, joined
from tf_transformer.config import Config
from tf_transformer.config.config import DataConfig
from tf_transformer.data.vocabulary import usable_tag
from tf_transformer.evaluation import SACREBLEU, Spread, make_metric
from tf_transformer.export.card import read_config
from tf_transformer.export.versions import find_export
from tf_transformer.reports.comparison import System, compare_outputs, shared_settings
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

    Args:
        config: the configuration of all runs.
        output: folder of the runs.
        seeds: the seeds.
        seconds: limit of time; 0 for none.
        more: further arguments of `tf-transformer train`.

    Returns:
        The status of `train_in_turn` and, if all seeds are trained, the table of scores.

    Raises:
        UserError: if `output` contains something else.
    """
    file = output / SETTINGS_FILE
    require_created_by("train --seeds", output, SETTINGS_FILE)
    if file.exists():
        before = Config.from_json(file.read_text("utf-8"))
        if wrong := differences(before, config, {"training.steps"}):
            raise UserError(
                f"{output} holds runs with another configuration: {wrong[0]}. Give "
                "another --output."
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

    Raises:
        UserError: if a run's record of these scores is lost.
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


logger = logging.getLogger(__name__)


def compare_systems(
    paths: Sequence[str],
    texts: Mapping[str, Sequence[str]],
    runs: Mapping[str, Sequence[Run]],
    sources: Sequence[str],
    references: Sequence[Sequence[str]],
    *,
    tag: str | None = None,
    metrics: Sequence[str] = tuple(SACREBLEU),
    tokenize: str | None = None,
    most: int = 5,
) -> list[Part]:
    """Compares each system with the first.

    Args:
        paths: the systems; the first is the baseline.
        texts: by path, the translations of those that are files.
        runs: by path, the runs of the others, one per seed; none for an export.
        sources: the text to translate; empty if `runs` is.
        references: one or more sets of references.
        tag: text to put before each source; exports have no tags.
        metrics: names of metrics.
        tokenize: sacreBLEU's tokeniser; by default that of the first run or export.
        most: maximum gains, and maximum losses, to show.

    Returns:
        The parts of a report in Markdown, for `output.joined`.
    """
    found = {path: find_export(Path(path)) for path, seeds in runs.items() if not seeds}
    exports = {path: read_config(export) if export else None for path, export in found.items()}
    tags = {
        run.path: usable_tag(tag, run.config.data, run.require_tokenizer())
        for seeds in runs.values()
        for run in seeds
    }
    if tag and exports:
        logger.warning("--tag has no effect on exports: %s", ", ".join(exports))
    if tokenize is None:
        configs = (seeds[0].config if seeds else exports[path] for path, seeds in runs.items())
        data = next((config.data for config in configs if config), DataConfig())
        tokenize = data.bleu_tokenizer
    systems = []
    for path, name in zip(paths, _names(paths), strict=True):
        if path in texts:
            systems.append(System(name, [texts[path]]))
        elif seeds := runs[path]:
            outputs = [_translated(run.path, sources, tags[run.path]) for run in seeds]
            systems.append(System(name, outputs, shared_settings(seeds)))
        else:
            config = exports[path]
            outputs = [_translated(Path(path), sources)]
            systems.append(System(name, outputs, config.flat() if config else {}))
    by_name = {name: make_metric(name, references, tokenize) for name in metrics}
    return compare_outputs(systems, by_name, sources, references, most, tokenize)


def _names(paths: Sequence[str]) -> list[str]:
    """Shortens paths by their common folder."""
    try:
        common = os.path.commonpath([Path(path).parent for path in paths])
    except ValueError:  # absolute and relative paths
        return [*paths]
    return [os.path.relpath(path, common or ".") for path in paths]


def _translated(path: Path, sources: Sequence[str], tag: str | None = None) -> list[str]:
    from tf_transformer import load  # imports TensorFlow

    translator = load(path, task="translation", tag=tag)
    with ProgressBars(len(sources)) as bars:
        outputs = translator.translate([*sources], progress=lambda n: bars(str(path), n))
    # Byte pieces can spell line breaks.
    return [each.replace("\r", " ").replace("\n", " ") for each in outputs]
