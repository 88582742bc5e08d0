"""Systems to compare: their translations, settings and training costs."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tf_transformer.run import Run
from tf_transformer.tasks.registry import encoder_outputs
from tf_transformer.training.memory import parameter_count
from tf_transformer.training.selection import is_out_of_patience

logger = logging.getLogger(__name__)

SEED = "training.seed"


@dataclass(frozen=True)
class System:
    """A system's translations of the test set.

    Attributes:
        name: as shown in reports.
        outputs: the translations of each of its seeds.
        settings: its configuration by "section.field"; empty if unknown.
        cost: figures by name, each as text; empty if unknown.
    """

    name: str
    outputs: Sequence[Sequence[str]]
    settings: Mapping[str, Any] = field(default_factory=dict)
    cost: Mapping[str, str] = field(default_factory=dict)


def members(path: Path) -> list[Path]:
    """Lists the finished runs of a folder written by `train --seeds`, in order of seed.

    A finished run has come to its last step or the end of its patience, and has an average of
    checkpoints. For any other folder the list is empty.
    """
    if (path / "config.json").exists():
        return []
    finished = []
    for folder in (file.parent for file in path.glob("seed-*/config.json")):
        if reason := _unfinished(Run.open(folder)):
            logger.warning("%s is skipped: %s; resume its `train --seeds`", folder, reason)
        else:
            finished.append(folder)
    return sorted(finished, key=lambda each: (len(each.name), each.name))


def _unfinished(run: Run) -> str:
    """Says what an unfinished run lacks; "" for a finished one."""
    steps = [record["step"] for record in run.history()]
    if max(steps, default=0) < run.config.training.steps and not is_out_of_patience(run):
        return "its training has not ended"
    return "" if run.checkpoints.average.exists() else "its average.npz is missing"


def settings_of(runs: Sequence[Run]) -> dict[str, Any]:
    """Returns the settings of runs that differ only in their seed."""
    seeds = [run.config.training.seed for run in runs]
    return runs[0].config.flat() | {SEED: seeds if len(seeds) > 1 else seeds[0]}


def cost_of(runs: Sequence[Run]) -> dict[str, str]:
    """Returns the training cost of runs from their records, all seeds together."""
    histories = [run.history() for run in runs]
    records = [record for history in histories for record in history]
    model = runs[0].config.model
    figures = {"parameters": f"{parameter_count(model, encoder_outputs(runs[0])):,}"}
    if not all("train_seconds" in record for record in records) or not all(histories):
        return figures
    seconds = sum(record["train_seconds"] for record in records)
    tokens = sum(record["train_seconds"] * record["tokens_per_second"] for record in records)
    return figures | {
        "updates": f"{sum(history[-1]['step'] for history in histories):,}",
        "target tokens": f"{tokens:,.0f}",
        "training hours": f"{seconds / 3600:.2f}",
    }
