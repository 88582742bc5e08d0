"""Facts about a run that its cards state: its text, its best evaluation, its origin."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import parse_json, sha256
from tf_transformer.data.text import (
    ROLES,
    Role,
    count_lines,
    identity,
    is_table,
    resolve_prefix,
    split_name,
    text_files,
)
from tf_transformer.run import Run
from tf_transformer.run.best import record_in
from tf_transformer.run.records import comparable, rank_of
from tf_transformer.run.run import with_signature


@dataclass(frozen=True)
class DataFile:
    """A text file that a run's configuration names."""

    role: Role
    path: str  # the expected path if the file is missing
    sha256: str | None  # of its content; None if it is missing

    def lines(self) -> int | None:
        """Returns the number of lines; None if the file is missing."""
        return None if self.sha256 is None else count_lines(Path(self.path))


def data_files(run: Run) -> list[DataFile]:
    """Lists the text files that the run's configuration names; none for the built-in corpus.

    Without languages, the configured names are files, not corpora.
    """
    return [
        _data_file(role, path, language)
        for role in ROLES
        for name in getattr(run.config.data, role)
        for path, languages in [split_name(name, run.config.data)]
        for language in ([""] if not languages[0] or is_table(path) else languages)
    ]


def _data_file(role: Role, path: Path, language: str) -> DataFile:
    try:
        file = resolve_prefix(path, language) if language else path
        return DataFile(role, str(file), sha256(file))
    except (UserError, OSError):
        return DataFile(role, f"{path}.{language}" if language else str(path), None)


def changed_text(run: Run) -> list[Role]:
    """Returns which text, training or dev, has changed since the last training session."""
    changed: list[Role] = []
    for role in ROLES:
        with suppress(UserError):  # a file is missing
            known, files = run.texts.get(role), text_files(run.config.data, role)
            if known and identity(files) != known:
                changed.append(role)
    return changed


def best_record(run: Run) -> dict[str, Any] | None:
    """Returns the run's evaluation with the best `training.best_by`; None without evaluations.

    Only evaluations on the latest dev set are compared.
    """
    best_by = run.config.training.best_by
    history = comparable(run.history())
    if not history:
        return None
    return with_signature(run, max(history, key=lambda record: rank_of(record, best_by)))


def described(record: dict[str, Any]) -> str:
    """Returns the dev scores of an evaluation, such as "bleu 39.97, chrf 62"."""
    return ", ".join(f"{name[6:]} {record[name]:.4g}" for name in record if "valid_" in name)


def describe_origin(run: Run) -> list[str]:
    """Returns lines for the card about the run that `training.init_from` names, if any."""
    training = run.config.training
    if not training.init_from:
        return []
    lines = [f"It began with the weights of {training.init_from}."]
    if run.origin.exists():
        origin = parse_json(run.origin.read_text(encoding="utf-8"))
        before = origin.get("evaluation") or {}
        known = described(before) or "not evaluated"
        lines.append(f"Their SHA-256 is {origin['sha256']}; on that run's dev set: {known}.")
        if start := record_in(run.checkpoints.step_path(0)):
            lines.append(f"On this run's dev set, before training: {described(start)}.")
        if origin["anew"]:
            lines.append(f"New: {', '.join(origin['anew'])}.")
    if training.lora_rank:
        lines.append(f"Trained: adapters of rank {training.lora_rank} (LoRA), then merged.")
    if training.freeze:
        lines.append(f"Not trained: {', '.join(training.freeze)}.")
    return lines
