"""The model card: origin, evaluation and configuration of a SavedModel."""

import dataclasses
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

from tf_transformer.files import sha256
from tf_transformer.run import Run, versions
from tf_transformer.run.run import best_record, data_files, evaluation_of


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
        checkpoint: best, average, last, a step, or "average of last 5".
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
        "config": dataclasses.asdict(run.config),
        "versions": versions(),
    }
