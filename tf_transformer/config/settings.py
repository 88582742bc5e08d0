"""Dataclass fields with bounds, choices and help; parsing of --set assignments."""

import dataclasses
import difflib
import json
import numbers
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tf_transformer.errors import UserError, quoted
from tf_transformer.strings import strings

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

    def allows(self, value: Any) -> bool:
        """Tells whether a value of the right type is within bounds or among the choices."""
        if value is None:
            return types.NoneType in self.types
        if self.bounds is None:
            return not self.choices or value in self.choices
        return value in self.bounds

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
        return self._is_of_type(value) and self.allows(value)

    def _is_of_type(self, value: Any) -> bool:
        if self.type == tuple[str, ...]:
            return isinstance(value, (list, tuple)) and all(map(_is_text, value))
        if type(value) is str:
            return str in self.types and _is_text(value)
        if type(value) is float and value.is_integer() and int in self.types:
            return True
        return type(value) in self.types or (type(value) is int and float in self.types)


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


def require_allowed(section: Any, prefix: str = "") -> None:
    """Converts the fields of a new dataclass to their types.

    Raises:
        UserError: for the first that is of another type or out of range.
    """
    for name, setting in settings_of(type(section), prefix).items():
        field = name.removeprefix(prefix)
        value = setting.check(name, getattr(section, field))
        object.__setattr__(section, field, value)  # the dataclass is frozen


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
        dotted, equals, text = assignment.partition("=")
        dotted = dotted.strip()
        if not equals:
            known = f" `{dotted}`: {settings[dotted].help}." if dotted in settings else ""
            raise UserError(
                "--set expects section.field=value, such as model.dropout=0.3. "
                f"Received: {quoted(assignment)}.{known}"
            )
        find_field(dotted, settings)
        values[dotted] = parse_value(settings[dotted], text.strip())
    return values


def find_field(dotted: str, settings: Mapping[str, Any]) -> tuple[str, str]:
    """Splits a setting's name into section and field; raises UserError if it is unknown."""
    if dotted not in settings:
        near = _nearest_settings(dotted, settings)
        hint = " or ".join(map(repr, near))
        hint = f" Did you mean {hint}?" if near else f" There are: {', '.join(settings)}."
        raise UserError(f"There is no setting {quoted(dotted)}.{hint}")
    section, _, name = dotted.partition(".")
    return section, name


def _nearest_settings(dotted: str, settings: Iterable[str]) -> list[str]:
    """Returns the settings with that field name in any section, or else the nearest name."""
    by_name: dict[str, list[str]] = {}
    for full in settings:
        by_name.setdefault(full.partition(".")[2], []).append(full)
    name = dotted.rpartition(".")[2]
    near = by_name.get(name) or difflib.get_close_matches(dotted, settings, n=1, cutoff=0.7)
    close = difflib.get_close_matches(name, by_name, n=1)
    return near or [full for field in close for full in by_name[field]]


def nearest(name: str, known: Iterable[str]) -> str:
    """Returns a hint for an unknown name: the nearest known name, or all of them."""
    known = list(known)
    near = difflib.get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(known)}."


def find_by_name(kind: str, name: str, known: Mapping[str, Any]) -> Any:
    """Looks up a name; raises UserError, with the nearest known name, if it is unknown."""
    if name not in known:
        near = difflib.get_close_matches(name, known, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UserError(
            f"There is no {kind} {quoted(name)}.{hint} There are: {', '.join(known)}."
        )
    return known[name]


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
