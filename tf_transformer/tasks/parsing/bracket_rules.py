"""Rules for comparing trees: Collins's, and the parameter files of evalb."""

import dataclasses
import re
from collections.abc import Iterable
from dataclasses import dataclass

from tf_transformer.errors import UserError, shortened


@dataclass(frozen=True)
class Rules:
    """Words and brackets to compare, and labels and words that count as equal.

    Attributes:
        labelled: whether brackets must agree in their label.
        cutoff: the longest sentence of the second summary, in words.
        delete: a word with such a tag is taken out; a bracket with such a label is not
            counted, while its parts are.
        delete_for_length: a word with such a tag does not count in a sentence's length.
        quotes: tags that a quotation mark may be given by mistake.
        equal_labels: pairs of labels, or of tags, that count as the same.
        equal_words: pairs of words that count as the same.
    """

    labelled: bool = True
    cutoff: int = 40
    delete: frozenset[str] = frozenset()
    delete_for_length: frozenset[str] = frozenset()
    quotes: frozenset[str] = frozenset()
    equal_labels: frozenset[frozenset[str]] = frozenset()
    equal_words: frozenset[frozenset[str]] = frozenset()

    def same_label(self, one: str, other: str) -> bool:
        """Tells whether two labels count as equal."""
        return one == other or frozenset((one, other)) in self.equal_labels

    def same_word(self, one: str, other: str) -> bool:
        """Tells whether two words count as equal."""
        return one == other or frozenset((one, other)) in self.equal_words

    def counts(self, label: str) -> bool:
        """Tells whether brackets with this label are counted."""
        return not any(self.same_label(label, deleted) for deleted in self.delete)


# The rules under which English parsers are compared since Collins (1997).
COLLINS = Rules(
    delete=frozenset(("TOP", "-NONE-", ",", ":", "``", "''", ".")),
    delete_for_length=frozenset(("-NONE-",)),
    equal_labels=frozenset((frozenset(("ADVP", "PRT")),)),
)

_NUMBERS = {"LABELED": "labelled", "CUTOFF_LEN": "cutoff"}
_LABELS = {
    "DELETE_LABEL": "delete",
    "DELETE_LABEL_FOR_LENGTH": "delete_for_length",
    "QUOTE_LABEL": "quotes",
}
_PAIRS = {"EQ_LABEL": "equal_labels", "EQ_WORD": "equal_words"}
# What evalb prints, and after how many errors it stops: no rules of scoring.
_IGNORED = ("DEBUG", "MAX_ERROR")


def read_rules(lines: Iterable[str], name: str = "parameters") -> Rules:
    """Reads a parameter file of evalb, such as COLLINS.prm.

    A line is a name and its values; lines that begin with # are comments. DEBUG and MAX_ERROR
    are passed over.

    Raises:
        UserError: for an unknown name or a wrong number of values, with the line's number.
    """
    rules = Rules()
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if words and not line.startswith("#"):
            rules = _with_line(rules, words[0], words[1:], f"{name}:{number}")
    return rules


def _with_line(rules: Rules, key: str, values: list[str], place: str) -> Rules:
    if key in _IGNORED:
        return rules
    if key in _NUMBERS:
        return _with_number(rules, key, values, place)
    if key not in _LABELS | _PAIRS:
        known = ", ".join((*_NUMBERS, *_LABELS, *_PAIRS, *_IGNORED))
        raise UserError(
            f"{place}: a line must begin with one of {known}. Received: {shortened(key)}."
        )
    expected = 2 if key in _PAIRS else 1
    if len(values) != expected:
        raise UserError(
            f"{place}: {key} must have {expected} value{'s' * (expected - 1)}. "
            f"Received: {shortened(' '.join(values)) or 'none'}."
        )
    field = (_LABELS | _PAIRS)[key]
    value = frozenset(values) if key in _PAIRS else values[0]
    return dataclasses.replace(rules, **{field: getattr(rules, field) | {value}})


def _with_number(rules: Rules, key: str, values: list[str], place: str) -> Rules:
    if len(values) != 1 or not re.fullmatch("[0-9]{1,9}", values[0]):
        raise UserError(
            f"{place}: {key} must have one whole number below 10**9. Received: "
            f"{shortened(' '.join(values)) or 'none'}."
        )
    number = int(values[0])
    return dataclasses.replace(
        rules, **{_NUMBERS[key]: bool(number) if key == "LABELED" else number}
    )
