"""The configuration of a run: its sections, overrides, and files in JSON and YAML."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from tf_transformer.config.data import DataConfig
from tf_transformer.config.decoding import DecodingConfig, SamplingConfig
from tf_transformer.config.model import ModelConfig
from tf_transformer.config.settings import (
    Setting,
    find_field,
    parse_assignments,
    parse_value,
    settings_of,
)
from tf_transformer.config.training import TrainingConfig
from tf_transformer.errors import UserError, quoted


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that defines a run, stored as config.json in its directory.

    Attributes:
        preset: name of the preset that it is based on, or empty.
        task: name of the task, a key of `tasks.registry.TASKS`.
    """

    preset: str = ""
    task: str = "translation"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def flat(self) -> dict[str, Any]:
        """Returns all settings as `{"section.field": value}`, with `preset` and `task`."""
        return flattened(dataclasses.asdict(self))

    def to_json(self, **also: Any) -> str:
        """Returns the content of config.json, which may have other entries as well."""
        record = dataclasses.asdict(self) | also
        return json.dumps(record, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parses config.json; raises UserError for an unknown or wrongly typed field."""
        try:
            record = json.loads(text)
            record.pop("texts", None)  # the hashes of a run's text are no setting
            names = {name: record.pop(name) for name in ("preset", "task")}
            values = {
                f"{section}.{name}": value
                for section, fields in record.items()
                for name, value in fields.items()
            }
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise UserError(f"The configuration is not a valid config.json: {error}.") from None
        return cls.from_flat(names | values)

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> Self:
        """Returns the configuration with settings by "section.field", `preset` and `task`.

        Raises:
            UserError: for an unknown setting, a wrong type or a value out of bounds.
        """
        rest = dict(values)
        names = {name: Setting(str).check(name, rest.pop(name)) for name in ("preset", "task")}
        return cls(**names).replace(rest)

    def replace(self, values: Mapping[str, Any]) -> Self:
        """Returns a copy with `{"section.field": value}` replaced, each value checked."""
        changes: dict[str, dict[str, Any]] = {}
        for dotted, value in values.items():
            section, name = find_field(dotted, SETTINGS)
            changes.setdefault(section, {})[name] = SETTINGS[dotted].check(dotted, value)
        sections = {
            section: dataclasses.replace(getattr(self, section), **fields)
            for section, fields in changes.items()
        }
        return dataclasses.replace(self, **sections)

    def override(
        self, assignments: Sequence[str], values: Mapping[str, Any] | None = None
    ) -> Self:
        """Returns a copy with the `section.field=value` arguments of --set applied.

        `values`, which they take precedence over, are applied with them: only the combination
        must be valid.
        """
        return self.replace(dict(values or {}) | parse_assignments(assignments, SETTINGS))


def flattened(record: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns nested fields as `{"section.field": value}`, and others under their names."""
    flat: dict[str, Any] = {}
    for section, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{section}.{name}": item for name, item in value.items()}
        else:
            flat[str(section)] = value
    return flat


# The settings of a run by "section.field", and the options of sampling.
SETTINGS = (
    settings_of(ModelConfig, "model.")
    | settings_of(DataConfig, "data.")
    | settings_of(TrainingConfig, "training.")
    | settings_of(DecodingConfig, "decoding.")
)
SAMPLING = settings_of(SamplingConfig)


def read_settings_file(path: Path) -> dict[str, Any]:
    """Reads a file into settings by "section.field", plus `preset` and `task` if present.

    A .json file is the config.json of a run. Any other file is YAML, with the same sections or
    with dotted names; a value is a string as for --set, or a YAML number, list and so on.

    Raises:
        UserError: if the file cannot be read, or has an unknown setting or invalid value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--config {path} cannot be read: {error}.") from None
    try:
        return Config.from_json(text).flat() if path.suffix == ".json" else _parse_yaml(text)
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from None


def _parse_yaml(text: str) -> dict[str, Any]:
    try:
        record = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"The file is not valid YAML: {error}.") from None
    if not isinstance(record, dict):
        raise UserError(
            "The file must have sections of settings, such as `model:`. Received: "
            f"{quoted(record)}."
        )
    return {name: _checked(name, value) for name, value in flattened(record).items()}


def _checked(name: str, value: Any) -> Any:
    if name in ("preset", "task"):  # outside the sections
        setting = Setting(str)
    else:
        find_field(name, SETTINGS)
        setting = SETTINGS[name]
    return setting.check(name, parse_value(setting, value) if isinstance(value, str) else value)
