"""The card of an export: what it was made from, and what it was tested with."""

import dataclasses
import json
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import parse_json, sha256, watched, write_text
from tf_transformer.config import Config
from tf_transformer.config.config import flattened
from tf_transformer.data.text import data_files
from tf_transformer.export.versions import is_lite
from tf_transformer.run import Run
from tf_transformer.run.run import best_record, evaluation_of, package_versions

CARD = Path("assets.extra", "model_card.json")  # in a version's folder
_TYPES = {"task": str, "config": dict, "decoding": dict, "sizes": dict, "longest_source": int}


def card_file(path: Path) -> Path:
    """Returns the file of an export's card; that for LiteRT has no folder for it."""
    return path / (CARD.name if is_lite(path) else CARD)


def read_card(path: Path) -> dict[str, Any]:
    """Returns the model card of an export; {} if it is missing or cannot be read."""
    try:
        card = parse_json(card_file(path).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return card if isinstance(card, dict) else {}


def checked_card(path: Path) -> dict[str, Any]:
    """Returns the model card of an export, {} without one; UserError if it is damaged."""
    card = read_card(path)
    wrong = [n for n, kind in _TYPES.items() if not isinstance(card.get(n), kind | None)]
    if wrong or (not card and card_file(path).exists()):
        received = f"{wrong[0]}: {quoted(card[wrong[0]])}" if wrong else "something else"
        raise UserError(
            f"{card_file(path)} must be as `export` wrote it. Received: {received}."
        )
    return card


def config_in(card: Mapping[str, Any]) -> Config | None:
    """Returns the configuration in the card of an export; None without a readable one."""
    try:
        config = Config.from_json(json.dumps(card["config"]))
        return config.replace({f"decoding.{k}": v for k, v in card["decoding"].items()})
    except (KeyError, AttributeError, UserError):  # no card
        return None


def write_card(file: Path, card: Mapping[str, Any]) -> None:
    """Writes the model card of an export."""
    write_text(file, json.dumps(card, indent=2, ensure_ascii=False) + "\n")


def changed_settings(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the values of the settings in which two cards differ, by dotted name."""
    first, second = (
        flattened(card.get("config", {}) | {"decoding": card.get("decoding", {})})
        for card in (before, json.loads(json.dumps(after)))  # lists instead of tuples
    )
    names = sorted(first.keys() | second.keys())
    pairs = {name: [first.get(name), second.get(name)] for name in names}
    return {name: [old, new] for name, (old, new) in pairs.items() if old != new}


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
                for data in data_files(run.config.data)
            },
            "longest_source": run.longest_source,
            "config": dataclasses.asdict(run.config),
            "versions": package_versions(),
        }

    return card
