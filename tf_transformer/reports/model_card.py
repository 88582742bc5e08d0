"""The model card that an export carries, with the facts about its run."""

import dataclasses
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from tf_transformer.base.files import sha256, watched
from tf_transformer.reports.facts import best_record, data_files
from tf_transformer.run import Run
from tf_transformer.run.run import evaluation_of, package_versions


def card_of(
    run: Run,
    checkpoint: str | None,
    *,
    ensemble: Sequence[Run] = (),
    precision: str = "float32",
    tag: str | None = None,
    **_: Any,
) -> Callable[[], dict[str, Any]]:
    """Returns a function that creates the card of an export; call it before loading.

    The function raises UserError if the weights have been replaced since. `checkpoint` is None
    for the run's own setting; `ensemble` has the further runs in the export, which computes in
    `precision` and puts `tag` before each source. Other options of loading are ignored.
    """
    others = {str(one.path): one.weights(checkpoint) for one in ensemble}
    name, file = checkpoint or run.config.decoding.checkpoint, run.weights(checkpoint)
    require_kept = watched(file, *others.values())

    def card() -> dict[str, Any]:
        require_kept()
        return {
            "task": "translation",
            "created": datetime.now(UTC).isoformat(timespec="seconds"),
            "checkpoint": {"name": name, "sha256": sha256(file)},
            "ensemble": {path: {"sha256": sha256(other)} for path, other in others.items()},
            "precision": precision,
            "tokenizer_sha256": sha256(run.tokenizer),
            "tag": tag,
            "evaluation_of_these_weights": None if ensemble else evaluation_of(run, file),
            "best_evaluation": best_record(run),
            "data": {  # the hashes at this moment
                data.path: data.sha256 or "not there at the time of the export"
                for data in data_files(run)
            },
            "longest_source": run.longest_source,
            "config": dataclasses.asdict(run.config),
            "versions": package_versions(),
        }

    return card
