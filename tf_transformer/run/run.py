"""The run directory: configuration, tokenizer, checkpoints, logs, versions, metrics."""

import fcntl
import json
import logging
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from tf_transformer.config import Config
from tf_transformer.data.texts import Role
from tf_transformer.errors import UserError, quoted
from tf_transformer.files import LOCK_FILE, write_text
from tf_transformer.run.checkpoints import CheckpointFolder
from tf_transformer.run.installed import versions
from tf_transformer.run.records import (
    changed,
    forbidden_changes,
    read_changes,
    read_history,
    read_results,
    write_lines,
)

logger = logging.getLogger(__name__)


class Run:
    """A folder with everything needed to translate, export or resume training.

    Attributes:
        texts: hash of the training and of the dev text of the last session, by role; see
            `data.texts.identity`. Empty for a run that was never trained.
    """

    def __init__(
        self, path: Path, config: Config, texts: Mapping[Role, str] | None = None
    ) -> None:
        self.path = path
        self.config = config
        self.texts = dict(texts or {})
        self.tokenizer = path / "tokenizer.model"
        self.origin = path / "origin.json"
        self.data = path / "data"
        self.logs = path / "logs"
        self.metrics = path / "metrics.jsonl"
        self.change_log = path / "changes.jsonl"
        self.results = path / "results.jsonl"
        self.checkpoints = CheckpointFolder(path / "checkpoints")

    @classmethod
    def open(cls, path: Path | str) -> Self:
        """Opens an existing run; UserError if the folder holds none."""
        file = Path(path) / "config.json"
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError):
            raise UserError(
                f"{path} is not a run directory: it has no readable config.json. "
                "Expected the --output of `train`."
            ) from None
        try:
            config, texts = Config.from_json(text), json.loads(text).get("texts", {})
            if not (isinstance(texts, dict) and {*map(type, texts.values())} <= {str}):
                raise UserError(f"`texts` must hold two hashes. Received: {quoted(texts)}.")
            return cls(Path(path), config, texts)
        except UserError as error:
            raise UserError(f"{file}: {error}") from None

    @classmethod
    def create_or_resume(
        cls, path: Path | str, config: Config, may_change: Mapping[str, str] | None = None
    ) -> Self:
        """Creates a run, or resumes the one in `path` if its configuration agrees.

        Before the first checkpoint, a corrected configuration replaces the old one. Afterwards,
        changes of settings that may change are announced and recorded in changes.jsonl.

        Args:
            path: the run directory.
            config: the configuration of this session.
            may_change: further settings that may change this time, each with a remark to
                announce it.

        Raises:
            UserError: if `path` holds a run with another configuration, weights without a state
                to resume from, or other files.
        """
        path, texts = Path(path), {}
        if (path / "config.json").exists():
            before = cls.open(path)
            texts = before.texts
            before.checkpoints.require_state_beside_best()
            allowed = dict(may_change or {})
            config = before._with_recorded_positions(config)
            current = before._with_recorded_tokenizer(config)
            changes = forbidden_changes(before.config, current, allowed)
            if changes and before.checkpoints.state_steps():
                raise UserError(
                    f"{path} holds a run with another configuration: {'; '.join(changes)}. "
                    "Give the same settings to resume it, or another --output."
                )
            if changes:
                before.discard_tokenizer()
            before._record_changed_settings(config, allowed)
        elif holds_other_files(path):
            raise UserError(
                f"{path} exists and is not a run directory. Give --output a new folder."
            )
        run = cls(path, config, texts)
        run._write_config()
        write_text(path / "versions.json", json.dumps(versions(), indent=2) + "\n")
        return run

    def weights(self, which: str | Path | None = None) -> Path:
        """Returns `which` if it is a path, else the weights of that or the default checkpoint.

        Raises:
            UserError: if the run has no such checkpoint.
        """
        if isinstance(which, Path):
            return which
        return self.checkpoints.find(which or self.config.decoding.checkpoint)

    def change_settings(self, values: Mapping[str, Any], remark: str) -> None:
        """Replaces settings in config.json; announces and records those that change."""
        before, self.config = self.config.flat(), self.config.replace(values)
        for name, value in values.items():
            if value != before[name]:
                self.record_change(name, before[name], value, remark)
        self._write_config()

    def set_positions(self, source: int, target: int, *, write: bool = True) -> None:
        """Sets how many learned positions sources and targets have trained."""
        values = {"model.source_positions": source, "model.target_positions": target}
        self.config = self.config.replace(values)
        if write:
            self._write_config()

    def record_texts(self, texts: Mapping[Role, str]) -> None:
        """Records the hashes of this session's text."""
        self.texts = dict(texts)
        self._write_config()

    def _write_config(self) -> None:
        write_text(self.path / "config.json", self.config.to_json(texts=self.texts))

    def _with_recorded_tokenizer(self, config: Config) -> Config:
        """Replaces the tokenizer's path by the recorded one if both files are equal.

        The run has a copy of the tokenizer, so the path of the original does not matter.
        """
        recorded, current = self.config.data.tokenizer, config.data.tokenizer
        if not (recorded and current):
            return config
        try:
            same = Path(current).read_bytes() == self.tokenizer.read_bytes()
        except OSError:
            return config
        return config.replace({"data.tokenizer": recorded}) if same else config

    def _with_recorded_positions(self, config: Config) -> Config:
        """Replaces the trained positions, which only training sets, by the recorded ones."""
        recorded = self.config.model
        if not recorded.positions == config.model.positions == "learned":
            return config
        return config.replace(
            {
                "model.source_positions": recorded.source_positions,
                "model.target_positions": recorded.target_positions,
            }
        )

    @property
    def has_no_text(self) -> bool:
        """Tells whether its weights come from elsewhere and it has never had text."""
        data = self.config.data
        named = data.train or data.valid
        return not (named or self.history()) and self.checkpoints.best.exists()

    def discard_tokenizer(self) -> None:
        """Deletes the tokenizer, so that a new one will be trained."""
        self.tokenizer.unlink(missing_ok=True)

    def _record_changed_settings(self, config: Config, remarks: Mapping[str, str]) -> None:
        """Records each changed setting, once training has begun."""
        for name, before, now in changed(self.config, config):
            # The trainer announces the size of parts itself.
            if name != "training.max_tokens_per_device" and self.checkpoints.state_steps():
                self.record_change(name, before, now, remarks.get(name, ""))

    def record_change(self, what: str, before: object, now: object, remark: str = "") -> None:
        """Announces a change between two sessions and adds it to changes.jsonl."""
        step = self.checkpoints.resume_step()
        remark = f" ({remark})" if remark else ""
        logger.warning(
            "from step %s on, %s is %s, was %s%s", f"{step:,}", what, now, before, remark
        )
        change = {"step": step, "what": what, "from": before, "to": now}
        recorded = self.changes()
        latest = [other for other in recorded if other["what"] == what][-1:]
        if any(json.loads(json.dumps(change)).items() <= other.items() for other in latest):
            return  # recorded by a session that ended before it wrote config.json
        change["time"] = _now()
        write_lines(self.change_log, [*recorded, change])

    def changes(self) -> list[dict[str, Any]]:
        """Reads the changes between sessions, oldest first: step, what, from, to and time."""
        return read_changes(self.change_log)

    def record_result(self, record: dict[str, Any]) -> None:
        """Appends the scores of a test set to results.jsonl, with the time."""
        record = {"time": _now()} | record
        with (self.path / "config.json").open() as one_at_a_time:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(one_at_a_time, fcntl.LOCK_EX)
            write_lines(self.results, [*read_results(self.results), record])

    def require_tokenizer(self) -> Path:
        """Returns the tokenizer's file; UserError if it is missing."""
        if not self.tokenizer.exists():
            raise UserError(f"{self.path} has no tokenizer.model: its training never began.")
        return self.tokenizer

    def history(self, *also: str) -> list[dict[str, Any]]:
        """Reads the evaluations so far, oldest first.

        Args:
            *also: names that every record must have, besides the usual ones.

        Raises:
            UserError: if a line is not a valid record.
        """
        return read_history(self.metrics, f"valid_{self.config.training.best_by}", *also)

    def write_history(self, records: list[dict[str, Any]]) -> None:
        """Replaces the evaluations in metrics.jsonl."""
        write_lines(self.metrics, records)


def holds_other_files(path: Path) -> bool:
    """Returns whether `path` is a file, or a folder with files that are not a run's.

    A lock file does not count, nor do temporary files that a killed process has left.
    """
    if not path.is_dir():
        return path.exists()
    return any(not (file.match(".*.tmp") or file.name == LOCK_FILE) for file in path.iterdir())


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
