"""The exception for user mistakes, and helpers that quote input in one-line messages."""

import reprlib
import unicodedata
from collections.abc import Iterable, Mapping, Set
from typing import Any, TypeAlias

# Unicode categories of line breaks, control characters and surrogates (invalid in UTF-8).
_ESCAPED = {"Cc", "Cs", "Zl", "Zp"}
_LONGEST_LINE = 2_000

_QUOTES = reprlib.Repr()
_QUOTES.maxstring = _QUOTES.maxlong = _QUOTES.maxother = 80


class UserError(ValueError):
    """A user's mistake, in one line: what was expected, what was received and what to do.

    Attributes:
        status: exit status of the command that it ends.

    Example:
        >>> import tf_transformer
        >>> try:
        ...     tf_transformer.load("runs/lost")
        ... except tf_transformer.UserError as error:
        ...     print(error)
        runs/lost must be a run directory, an export or a .keras file. Received: no such path.
    """

    status = 1


def missing_extra(user: str, package: str | None, extra: str) -> UserError:
    """Returns the error that a feature needs a package, which an extra of `setup.cfg` has."""
    return UserError(
        f'{user} needs {package}, which is not installed: pip install "tf-transformer[{extra}]"'
    )


def quoted(value: object) -> str:
    """Returns the `repr` of a value, 200 characters at most, 80 of any string or number."""
    return shortened(_QUOTES.repr(value), 200)


def shortened(text: str, most: int = 80) -> str:
    """Returns the text; if it is longer than `most` characters, its beginning and "..."."""
    return text if len(text) <= most else f"{text[:most]}..."


def one_line(message: object) -> str:
    """Returns a message as one line: escapes control characters, cuts out a long middle."""
    line = "".join(map(_escaped, str(message)))
    if len(line) <= _LONGEST_LINE:
        return line
    half = _LONGEST_LINE // 2
    return f"{line[:half]} ... {line[-half:]}"


def _escaped(char: str) -> str:
    if unicodedata.category(char) in _ESCAPED:
        return char.encode("unicode_escape").decode()
    return char


def reason(error: Exception) -> str:
    """Returns the whole message of an error in one line, without TensorFlow's heading."""
    line = " ".join(str(error).split())
    return one_line(line.removeprefix("Graph execution error: "))


Strings: TypeAlias = list[str] | tuple[str, ...]


def strings(name: str, value: Any) -> list[str]:
    """Returns the argument `name`, any ordered iterable of strings but a string, as a list."""
    if isinstance(value, str) or not _is_vector(value):
        raise TypeError(f"`{name}` must be a list of strings. Received: {quoted(value)}.")
    values = list(value)
    for number, item in enumerate(values):
        if not isinstance(item, str):
            raise TypeError(
                f"`{name}` must be a list of strings. Received: {quoted(item)} at index "
                f"{number}, counted from 0."
            )
    return values


def one_or_more(name: str, value: Any) -> tuple[bool, list[str]]:
    """Returns whether an argument is a single string, and its strings as a list.

    Raises TypeError if it is neither a string nor a list of strings.
    """
    if isinstance(value, str):
        return True, [value]
    if not _is_vector(value):
        raise TypeError(
            f"`{name}` must be a string or a list of strings. Received: {quoted(value)}."
        )
    return False, strings(name, value)


def _is_vector(value: Any) -> bool:
    """Tells whether a value is ordered and has one dimension, unlike a DataFrame."""
    ordered = isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping, Set))
    return ordered and getattr(value, "ndim", 1) == 1


def pairs(**sides: Any) -> tuple[bool, list[str], list[str]]:
    """Returns whether two arguments are single strings, and the strings of both as lists.

    Raises:
        TypeError: if one is neither a string nor a list of strings, or only one is a string.
        ValueError: if they are lists of different lengths.
    """
    (first, second), values = sides, [one_or_more(*side) for side in sides.items()]
    (one, left), (other, right) = values
    if one != other:
        raise TypeError(
            f"`{first}` and `{second}` must both be strings, or both lists. "
            f"Received: {quoted(sides[first])} and {quoted(sides[second])}."
        )
    if len(left) != len(right):
        raise ValueError(
            f"`{first}` and `{second}` must have the same number of strings. "
            f"Received: {len(left)} and {len(right)}."
        )
    return one, left, right
