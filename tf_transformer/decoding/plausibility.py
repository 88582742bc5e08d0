"""Reasons why a translation looks wrong, the same in commands, Python and the server."""

from collections.abc import Callable
from typing import Any

from tf_transformer.data.documents import WIDE
from tf_transformer.data.spans import CHANGES, KINDS, differences
from tf_transformer.data.text import is_visible

LONG = "longer than any in training"  # of a source; the others are of source and translation


def _letters(text: str) -> int:
    return len(text) + 2 * sum(char >= WIDE for char in text)


# By reason, whether it applies to a source and its translation. The guide measures the limits.
REASONS: dict[str, Callable[[str, Any], bool]] = {
    "blank": lambda source, found: is_visible(source) and not is_visible(found),
    "too short": lambda source, found: _letters(found) < 0.8 * _letters(source) - 15,
    "too long": lambda source, found: _letters(found) > 2 * _letters(source) + 20,
    "copied": lambda source, found: _letters(source) > 20 and found.copies(source),
    "improbable": lambda source, found: found.is_less_probable_than(-1.5),
}
# Of spans that only one side has, or that the translation has more often: "number missing".
OF_SPANS = tuple(f"{kind} {change}" for kind in KINDS for change in CHANGES)
ALL = (LONG, *REASONS, *OF_SPANS)


def looks_wrong(source: str, translation: Any, is_long: bool = False) -> tuple[str, ...]:
    """Returns the reasons why a translation looks wrong, () if none applies.

    `translation` is a `Translation`; `is_long` tells whether the source has more tokens than
    any in training.
    """
    found = (name for name, applies in REASONS.items() if applies(source, translation))
    spans = dict.fromkeys(each.partition(":")[0] for each in differences(source, translation))
    return *([LONG] if is_long else []), *found, *spans
