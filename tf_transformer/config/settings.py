"""Dataclass fields with bounds, choices and help; parsing of --set assignments."""

import dataclasses
import difflib
import json
import numbers
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tf_transformer.base.errors import UserError, quoted, strings

# Counts fit int32; the largest float is roughly that of float32.
MAX_COUNT, MAX_FLOAT = 1_000_000_000, 1e38
# Tokens in a text, positions in a model: a longer search would hardly ever end.
MAX_TOKENS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """An interval from `low` (inclusive) or `above` to `high` (inclusive) or `below`."""

    low: float | None = None
    high: float | None = None
    above: float | None = None
    below: float | None = None

    def __contains__(self, number: float) -> bool:
        return (
            (self.low is None or number >= self.low)
            and (self.high is None or number <= self.high)
            and (self.above is None or number > self.above)
            and (self.below is None or number < self.below)
        )

    def __str__(self) -> str:
        if self.below is not None:
            return f"in [{self.low}, {self.below})"
        if self.above is not None:
            return f"above {self.above} and at most {self.high}"
        return f"from {self.low} to {self.high}"


@dataclass(frozen=True)
class Setting:
    """A setting: its type (possibly a union), bounds or choices, default and help."""

    type: Any
    bounds: Bounds | None = None
    choices: tuple[str, ...] = ()
    default: Any = None
    help: str = ""

    @property
    def types(self) -> tuple[type, ...]:
        """The members of a union, or the type itself."""
        return self.type.__args__ if isinstance(self.type, types.UnionType) else (self.type,)

    def __str__(self) -> str:
        """Returns the words that complete "must be ..."."""
        if self.choices:
            return f"one of {self.choices}"
        if self.type == tuple[str, ...]:
            return "a list of strings"
        return " or ".join(map(self._named, self.types))

    def _named(self, type_: type) -> str:
        if type_ in (int, float) and self.bounds:
            return f"an int {self.bounds}" if type_ is int else str(self.bounds)
        return "None" if type_ is types.NoneType else type_.__name__

    def check(self, name: str, value: Any) -> Any:
        """Returns the value in the setting's type: 2.0 as an int, 2 as a float and so on.

        NumPy's numbers become Python's.

        Raises:
            UserError: if the value is of another type or out of range.
        """
        require(self.fits(value), name, str(self), value)
        if self.type == tuple[str, ...]:
            return tuple(value)
        value = _plain(value)
        if type(value) in self.types:
            return value
        return int(value) if int in self.types else float(value)

    def fits(self, value: Any) -> bool:
        """Tells whether `check` accepts the value."""
        value = _plain(value)
        if self.type == tuple[str, ...]:
            return isinstance(value, (list, tuple)) and all(map(_is_text, value))
        if type(value) not in (int, float):
            allowed = type(value) is not str or (
                _is_text(value) and (not self.choices or value in self.choices)
            )
            return type(value) in self.types and allowed
        is_number = float in self.types or (int in self.types and value % 1 == 0)
        return is_number and (self.bounds is None or value in self.bounds)


def _plain(value: Any) -> Any:
    """Returns a number as Python's int or float; bool and everything else as it is."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        return value
    return int(value) if isinstance(value, numbers.Integral) else float(value)


def setting(default: Any, *, help: str, choices: Sequence[str] = (), **bounds: float) -> Any:
    """Returns a dataclass field with help and choices or bounds (the fields of `Bounds`)."""
    limits = {"bounds": Bounds(**bounds) if bounds else None, "choices": tuple(choices)}
    return dataclasses.field(default=default, metadata=limits | {"help": help})


def settings_of(section: type, prefix: str = "") -> dict[str, Setting]:
    """Returns the fields of a dataclass as settings by name, prefixed with `prefix`."""
    return {
        f"{prefix}{field.name}": Setting(field.type, default=field.default, **field.metadata)
        for field in dataclasses.fields(section)
    }


def convert_fields(section: Any) -> None:
    """Converts the fields of a new dataclass to their types.

    Raises:
        UserError: for the first that is of another type or out of range.
    """
    for name, setting in settings_of(type(section)).items():
        value = setting.check(name, getattr(section, name))
        object.__setattr__(section, name, value)  # the dataclass is frozen


def require(condition: bool, name: str, expected: str, received: object) -> None:
    """Raises UserError unless `condition` is true: the setting must be `expected`."""
    if not condition:
        raise UserError(f"`{name}` must be {expected}. Received: {quoted(received)}.")


def parse_assignments(
    assignments: Sequence[str], settings: Mapping[str, Setting]
) -> dict[str, Any]:
    """Parses the `section.field=value` arguments of --set; the last one for a field wins.

    Raises:
        UserError: if there is no equals sign or no such setting.
    """
    values = {}
    for assignment in strings("overrides", assignments):
        name, equals, text = assignment.partition("=")
        if not equals:
            raise UserError(
                "--set expects section.field=value, such as model.dropout=0.3. "
                f"Received: {quoted(assignment)}."
            )
        setting = find("setting", name.strip(), settings)
        values[name.strip()] = parse_value(setting, text.strip())
    return values


def find(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """Looks up a name; raises UserError, with what was perhaps meant, if it is unknown."""
    if name not in known:
        raise UserError(f"There is no {kind} {quoted(name)}.{nearest(name, known)}")
    return known[name]


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint for an unknown name.

    It names the fields of that name in any section, the nearest name, or all names.
    """
    known, field = list(known), name.rpartition(".")[2]
    near = [full for full in known if full.endswith(f".{field}")]
    near = near or difflib.get_close_matches(name, known, n=1)
    hint = " or ".join(map(repr, near))
    return f" Did you mean {hint}?" if near else f" There are: {', '.join(known)}."


def _is_text(value: Any) -> bool:
    """Tells whether a value is a string that UTF-8 files and file names can hold."""
    return type(value) is str and not any(
        char == "\0" or "\ud800" <= char <= "\udfff" for char in value
    )


def parse_value(setting: Setting, text: str) -> Any:
    """Parses a value: comma-separated for a list, else as JSON if it is valid, else as text."""
    if setting.type == tuple[str, ...]:
        return [part for part in text.split(",") if part]
    if setting.type is str:
        return text
    try:
        return json.loads({"None": "null", "True": "true", "False": "false"}.get(text, text))
    except ValueError:  # not JSON, or too many digits
        return text
