"""The run directory: configuration, tokenizer, checkpoints, logs, versions, metrics."""

import dataclasses
import json
import platform
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from tf_transformer.config import Config
from tf_transformer.errors import UserError
from tf_transformer.files import write_text
from tf_transformer.training.checkpoints import CheckpointFolder

# What may change between two sessions of one run: nothing that has shaped its weights so far.
_CHANGEABLE = ("preset", "training.steps", "training.patience", "training.keep_last",
               "training.average_last", "decoding.")  # fmt: skip

_PACKAGES = (
    "tf-transformer",
    "tensorflow",
    "keras",
    "keras-nlp",
    "tensorflow-text",
    "sentencepiece",
    "sacrebleu",
    "numpy",
)


class Run:
    """All that is needed to translate, export or go on training, in one folder."""

    def __init__(self, path: Path, config: Config) -> None:
        self.path = path
        self.config = config
        self.tokenizer = path / "tokenizer.model"
        self.data = path / "data"
        self.logs = path / "logs"
        self.metrics = path / "metrics.jsonl"
        self.checkpoints = CheckpointFolder(path / "checkpoints")

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """A run that exists; UserError if the folder holds none."""
        file = Path(path) / "config.json"
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise UserError(
                f"{path} is not a run directory: it has no readable config.json. "
                "Expected a folder that train.py wrote (its --output)."
            ) from None
        return cls(Path(path), Config.from_json(text))

    @classmethod
    def create_or_resume(cls, path: Path | str, config: Config) -> Self:
        """A new run, or the one in `path` if its configuration agrees.

        A run without a checkpoint has nothing to lose: a corrected configuration replaces its.

        Raises:
            UserError: if `path` holds a run with another configuration, or other files.
        """
        path = Path(path)
        if (path / "config.json").exists():
            before = cls.open(path)
            changes = _changes(before.config, config)
            if changes and before.checkpoints.steps():
                raise UserError(
                    f"{path} holds a run of another configuration: {'; '.join(changes)}. "
                    "Give the same settings to go on, or another --output."
                )
            if changes:
                before.tokenizer.unlink(missing_ok=True)
        elif path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(
                f"{path} exists and is not a run directory. Give --output a new folder."
            )
        write_text(path / "config.json", config.to_json())
        write_text(path / "versions.json", json.dumps(versions(), indent=2) + "\n")
        return cls(path, config)

    def history(self) -> list[dict[str, Any]]:
        """The evaluations so far, oldest first, one record of metrics each."""
        if not self.metrics.exists():
            return []
        try:
            lines = self.metrics.read_text(encoding="utf-8").splitlines()
            return [json.loads(line) for line in lines]
        except ValueError as error:
            raise UserError(
                f"{self.metrics} is damaged: {error}. Expected one JSON object a line; "
                "delete the broken line."
            ) from None

    def write_history(self, records: list[dict[str, Any]]) -> None:
        """Replaces metrics.jsonl: one JSON object a line."""
        write_text(self.metrics, "".join(json.dumps(record) + "\n" for record in records))


def versions() -> dict[str, str]:
    """Python's, the platform's and the packages' versions."""
    installed = {name: _version(name) for name in _PACKAGES}
    return {"python": platform.python_version(), "platform": platform.platform()} | installed


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def _changes(stored: Config, given: Config) -> list[str]:
    """What differs and may not, for a message."""
    before, now = _flat(stored), _flat(given)
    return [
        f"{name} was {before[name]!r}, now {now[name]!r}"
        for name in now
        if now[name] != before[name] and not name.startswith(_CHANGEABLE)
    ]


def _flat(config: Config) -> dict[str, Any]:
    flat: dict[str, Any] = {}
    for section, value in dataclasses.asdict(config).items():
        if isinstance(value, dict):
            flat |= {f"{section}.{name}": item for name, item in value.items()}
        else:
            flat[section] = value
    return flat
