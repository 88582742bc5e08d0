"""Checks of text arguments, so that no string is taken for a list of characters."""

from collections.abc import Iterable, Mapping, Set
from typing import Any, TypeAlias

from tf_transformer.errors import quoted

Strings: TypeAlias = list[str] | tuple[str, ...]


def refuse_string(name: str, value: Any) -> None:
    """Raises TypeError for a single string, whose items would be its characters."""
    if isinstance(value, (str, bytes)):
        raise TypeError(f"`{name}` must be a list of strings. Received: {quoted(value)}.")


def strings(name: str, value: Any) -> list[str]:
    """Returns an argument as a list of strings; it may be any ordered iterable of strings.

    Args:
        name: name of the argument, for messages.
        value: value of the argument.

    Raises:
        TypeError: if it is anything else, such as a single string.
    """
    if not isinstance(value, Iterable) or isinstance(value, (str, bytes, Mapping, Set)):
        raise TypeError(f"`{name}` must be a list of strings. Received: {quoted(value)}.")
    values = list(value)
    for item in values:
        if not isinstance(item, str):
            raise TypeError(
                f"`{name}` must be a list of strings. Received: a list with {quoted(item)}."
            )
    return values


def one_or_more(name: str, value: Any) -> tuple[bool, list[str]]:
    """Returns whether an argument is a single string, and its strings as a list.

    Raises:
        TypeError: if it is neither a string nor a list of strings.
    """
    if isinstance(value, str):
        return True, [value]
    if not isinstance(value, Iterable) or isinstance(value, (bytes, Mapping, Set)):
        raise TypeError(
            f"`{name}` must be a string or a list of strings. Received: {quoted(value)}."
        )
    return False, strings(name, value)


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
