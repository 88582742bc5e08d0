"""Settings from a file: some of them in YAML, or all of a run's in its config.json."""

from pathlib import Path
from typing import Any

import yaml

from tf_transformer.config.config import SETTINGS, Config, flattened
from tf_transformer.config.settings import find_field, parse_value
from tf_transformer.errors import UserError, quoted

_NAMES = ("preset", "task")  # settings outside the sections


def read_settings_file(path: Path) -> dict[str, Any]:
    """Reads settings by "section.field", and `preset` and `task` if present.

    A .json file is the config.json of a run. Any other file is YAML, with the same sections or
    with dotted names; a value is a string as --set takes it, or a YAML number, list and so on.

    Raises:
        UserError: if the file cannot be read, or has an unknown setting or a wrong value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--config {path} cannot be read: {error}.") from None
    try:
        return Config.from_json(text).flat() if path.suffix == ".json" else _of_yaml(text)
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from None


def _of_yaml(text: str) -> dict[str, Any]:
    try:
        record = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"The file is not valid YAML: {error}.") from None
    if not isinstance(record, dict):
        raise UserError(
            "The file must have sections of settings, such as `model:`. Received: "
            f"{quoted(record)}."
        )
    return {name: _checked(name, value) for name, value in flattened(record).items()}


def _checked(name: str, value: Any) -> Any:
    if name in _NAMES:
        if isinstance(value, str):
            return value
        raise UserError(f"`{name}` must be str. Received: {quoted(value)}.")
    find_field(name, SETTINGS)
    setting = SETTINGS[name]
    return setting.check(name, parse_value(setting, value) if isinstance(value, str) else value)
