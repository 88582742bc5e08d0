"""The model card that an export carries, with the facts about its run."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tf_transformer.base.files import sha256
from tf_transformer.reports.facts import best_record, data_files
from tf_transformer.run import Run
from tf_transformer.run.run import evaluation_of, package_versions


def model_card(
    run: Run,
    checkpoint: str,
    file: Path,
    precision: str = "float32",
    *,
    tag: str | None = None,
    ensemble: Mapping[str, Path] = MappingProxyType({}),
) -> dict[str, Any]:
    """Returns the card of an export.

    Args:
        run: the exported run.
        checkpoint: best, average, last or a step.
        file: the checkpoint's file.
        precision: data type of the exported weights.
        tag: text that the export puts before each source.
        ensemble: weight files of the other models, by run directory.
    """
    return {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "checkpoint": {"name": checkpoint, "sha256": sha256(file)},
        "ensemble": {path: {"sha256": sha256(other)} for path, other in ensemble.items()},
        "precision": precision,
        "tokenizer_sha256": sha256(run.tokenizer),
        "tag": tag,
        "evaluation_of_these_weights": evaluation_of(run, file) if not ensemble else None,
        "best_evaluation": best_record(run),
        "data": {  # the hashes at this moment
            data.path: data.sha256 or "not there at the time of the export"
            for data in data_files(run)
        },
        "longest_source": run.longest_source,
        "config": dataclasses.asdict(run.config),
        "versions": package_versions(),
    }
