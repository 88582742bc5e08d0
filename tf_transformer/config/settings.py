"""Settings: types, bounds and choices of fields, `section.field=value` texts; no TensorFlow."""

import dataclasses
import difflib
import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tf_transformer.errors import UserError, quoted


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """An interval of numbers: `low` and `high` are in it, `above` and `below` are not.

    One of `low` and `above`, and one of `high` and `below`, is None.
    """

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, number: float) -> bool:
        return (self.low is None or number >= self.low) and (
            self.above is None or number > self.above
        ) and (self.high is None or number <= self.high) and (
            self.below is None or number < self.below
        )  # fmt: skip

    def __str__(self) -> str:
        if self.below is not None:
            return f"in [{self.low}, {self.below})"
        if self.above is not None:
            return f"above {self.above} and at most {self.high}"
        return f"from {self.low} to {self.high}"


@dataclass(frozen=True)
class Setting:
    """The values that a setting may have.

    Attributes:
        type: a type, a union of types, or tuple[str, ...].
        bounds: of a number.
        choices: of a string; empty for any.
    """

    type: Any
    bounds: Bounds | None = None
    choices: tuple[str, ...] = ()

    @property
    def types(self) -> tuple[type, ...]:
        return self.type.__args__ if isinstance(self.type, types.UnionType) else (self.type,)

    def __str__(self) -> str:
        """The end of "must be ..."."""
        if self.choices:
            return f"one of {self.choices}"
        if self.type == tuple[str, ...]:
            return "a list of strings"
        return " or ".join(map(self._named, self.types))

    def _named(self, one: type) -> str:
        if one in (int, float) and self.bounds:
            return f"an int {self.bounds}" if one is int else str(self.bounds)
        return "None" if one is types.NoneType else one.__name__

    def allows(self, value: Any) -> bool:
        """Whether a value of the right type is within bounds, or one of the choices."""
        if value is None:
            return types.NoneType in self.types
        if self.bounds is None:
            return not self.choices or value in self.choices
        return value in self.bounds

    def check(self, name: str, value: Any) -> Any:
        """The value as this setting's type, where nothing is lost by it; else a UserError.

        A whole float is an int, an int a float, a list of strings a tuple.
        """
        require(self.fits(value), name, str(self), value)
        if self.type == tuple[str, ...]:
            return tuple(value)
        if type(value) in self.types:
            return value
        return int(value) if int in self.types else float(value)

    def fits(self, value: Any) -> bool:
        """Whether `check` takes the value."""
        return self._is_of_type(value) and self.allows(value)

    def _is_of_type(self, value: Any) -> bool:
        if self.type == tuple[str, ...]:
            return isinstance(value, (list, tuple)) and all(map(_is_text, value))
        if type(value) is str:
            return str in self.types and _is_text(value)
        if type(value) is float and value.is_integer() and int in self.types:
            return True
        return type(value) in self.types or (type(value) is int and float in self.types)


def setting(default: Any, *, choices: Sequence[str] = (), **bounds: float) -> Any:
    """A field of a dataclass with what its value may be: `bounds` are those of `Bounds`."""
    limits = {"bounds": Bounds(**bounds) if bounds else None, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=limits)


def settings_of(section: type, prefix: str = "") -> dict[str, Setting]:
    """The settings that are the fields of a dataclass, by prefix and name."""
    return {
        f"{prefix}{field.name}": Setting(field.type, **field.metadata)
        for field in dataclasses.fields(section)
    }


def require_allowed(section: Any, prefix: str = "") -> None:
    """Checks the numbers and choices of a dataclass; UserError for the first that is wrong."""
    for name, allowed in settings_of(type(section), prefix).items():
        value = getattr(section, name.removeprefix(prefix))
        require(allowed.allows(value), name, str(allowed), value)


def require(condition: bool, name: str, expected: str, received: object) -> None:
    """Raises the UserError of a setting out of its range, unless `condition` holds."""
    if not condition:
        raise UserError(f"`{name}` must be {expected}. Received: {quoted(received)}.")


def parse_assignments(
    assignments: Sequence[str], settings: Mapping[str, Setting]
) -> dict[str, Any]:
    """The values of `section.field=value` texts, as the command line's --set takes them.

    Args:
        assignments: the texts; the last one of a field holds.
        settings: by dotted name.

    Raises:
        UserError: if there is no equals sign or no such field.
    """
    values = {}
    for assignment in assignments:
        dotted, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(
                f"--set expects section.field=value, such as model.dropout=0.3. "
                f"Received: {quoted(assignment)}."
            )
        dotted = dotted.strip()
        find_field(dotted, settings)
        values[dotted] = _parse(settings[dotted].type, text.strip())
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
        raise UserError(f"There is no setting {quoted(dotted)}.{hint}")
    section, _, name = dotted.partition(".")
    return section, name


def _is_text(value: Any) -> bool:
    """Whether it is a string that a UTF-8 file and the name of a file can hold."""
    return type(value) is str and not any(
        char == "\0" or "\ud800" <= char <= "\udfff" for char in value
    )


def _parse(hint: Any, text: str) -> Any:
    """Reads a command-line value: JSON where it is JSON, comma-separated lists, else text."""
    if hint == tuple[str, ...]:
        return [part for part in text.split(",") if part]
    if hint is str:
        return text
    try:
        return json.loads({"None": "null", "True": "true", "False": "false"}.get(text, text))
    except (ValueError, RecursionError):  # no JSON, too many digits, or too deep
        return text
