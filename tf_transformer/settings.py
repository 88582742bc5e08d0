"""Reading settings: `section.field=value` texts, JSON values, their types; no TensorFlow."""

import difflib
import json
import math
import types
from collections.abc import Mapping, Sequence
from typing import Any

from tf_transformer.errors import UserError


def require(condition: bool, name: str, expected: str, received: object) -> None:
    """Raises the UserError of a setting out of its range, unless `condition` holds."""
    if not condition:
        raise UserError(f"`{name}` must be {expected}. Received: {received!r}.")


def parse_assignments(assignments: Sequence[str], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The values of `section.field=value` texts, as the command line's --set takes them.

    Args:
        assignments: the texts; the last one of a field holds.
        fields: the type of each field by its dotted name.

    Raises:
        UserError: if there is no equals sign or no such field.
    """
    values = {}
    for assignment in assignments:
        dotted, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(
                f"--set expects section.field=value, such as model.dropout=0.3. "
                f"Received: {assignment!r}."
            )
        dotted = dotted.strip()
        find_field(dotted, fields)
        values[dotted] = _parse(fields[dotted], text.strip())
    return values


def find_field(dotted: str, fields: Mapping[str, Any]) -> tuple[str, str]:
    """Section and name of a field; UserError with the nearest one if there is no such field."""
    if dotted not in fields:
        by_name = {full.partition(".")[2]: full for full in fields}
        name = dotted.rpartition(".")[2]
        near = difflib.get_close_matches(dotted, fields, n=1, cutoff=0.7) or [
            by_name[match] for match in difflib.get_close_matches(name, by_name, n=1)
        ]
        hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(fields)}."
        raise UserError(f"There is no setting {dotted!r}.{hint}")
    section, _, name = dotted.partition(".")
    return section, name


def check_type(dotted: str, hint: Any, value: Any) -> Any:
    """The value as the type `hint`, where nothing is lost by it; else a UserError.

    A whole float is an int, an int a float, a list of strings a tuple; floats are finite.
    """
    if hint == tuple[str, ...]:
        strings = isinstance(value, (list, tuple)) and all(type(v) is str for v in value)
        require(strings, dotted, "a list of strings", value)
        return tuple(value)
    allowed = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    if float in allowed and type(value) is int:
        return float(value)
    if int in allowed and type(value) is float and value.is_integer():
        return int(value)
    if type(value) not in allowed:
        names = " or ".join("None" if a is type(None) else getattr(a, "__name__", str(a))
                            for a in allowed)  # fmt: skip
        raise UserError(f"`{dotted}` must be {names}. Received: {value!r}.")
    if type(value) is float:
        require(math.isfinite(value), dotted, "a finite number", value)
    return value


def _parse(hint: Any, text: str) -> Any:
    """Reads a command-line value: JSON where it is JSON, comma-separated lists, else text."""
    if hint == tuple[str, ...]:
        return [part for part in text.split(",") if part]
    if hint is str:
        return text
    try:
        return json.loads({"None": "null", "True": "true", "False": "false"}.get(text, text))
    except json.JSONDecodeError:
        return text
