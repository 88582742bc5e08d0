"""Brackets of trees by the rules of evalb: which of them count, and which match."""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tf_transformer.errors import UserError, shortened
from tf_transformer.tasks.parsing.trees import Tree

# Words that may be quotation marks under a wrong tag.
_QUOTATION_MARKS = frozenset(("'", '"', "/"))


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

_NUMBERS = ("LABELED", "CUTOFF_LEN")
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
    return replace(rules, **{field: getattr(rules, field) | {value}})


def _with_number(rules: Rules, key: str, values: list[str], place: str) -> Rules:
    if len(values) != 1 or not re.fullmatch("[0-9]{1,9}", values[0]):
        raise UserError(
            f"{place}: {key} must have one whole number below 10**9. Received: "
            f"{shortened(' '.join(values)) or 'none'}."
        )
    number = int(values[0])
    if key == "LABELED":
        return replace(rules, labelled=bool(number))
    return replace(rules, cutoff=number)


# --- Spans --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bracket:
    """A constituent: its category, and its words, start to end - 1.

    `place` is its number in its line: the outer before the inner, from left to right, from 0.
    """

    label: str
    start: int
    end: int
    place: int


class Line:
    """The trees of a line as words, of which some are kept, and brackets over all words."""

    def __init__(self, trees: Sequence[Tree], rules: Rules):
        self._rules = rules
        self.leaves: list[Tree] = []
        self._brackets: list[Bracket | None] = []
        for tree in trees:
            self._add(tree)
        self.kept = [leaf.label not in rules.delete for leaf in self.leaves]

    def _add(self, tree: Tree) -> None:
        if tree.word is not None:
            self.leaves.append(tree)
            return
        place, start = len(self._brackets), len(self.leaves)
        self._brackets.append(None)  # its end is not known before that of its parts
        for child in tree.children:
            self._add(child)
        label = tree.label.partition("-")[0].partition("=")[0]
        self._brackets[place] = Bracket(label, start, len(self.leaves), place)

    def words(self) -> list[str]:
        """Returns the words that are kept."""
        return [leaf.word or "" for leaf in itertools.compress(self.leaves, self.kept)]

    def tags(self) -> list[str]:
        """Returns the tags of the words that are kept."""
        return [leaf.label for leaf in itertools.compress(self.leaves, self.kept)]

    def brackets(self) -> list[Bracket]:
        """Returns the brackets that count, over the words that are kept."""
        position = [0, *itertools.accumulate(self.kept)]
        brackets = (
            replace(bracket, start=position[bracket.start], end=position[bracket.end])
            for bracket in self._brackets
            if bracket is not None
        )
        return [
            bracket
            for bracket in brackets
            if bracket.start < bracket.end and self._rules.counts(bracket.label)
        ]

    def quotes(self) -> list[int]:
        """Returns the leaves that are quotation marks under one of the rules' tags."""
        return [
            index
            for index, leaf in enumerate(self.leaves)
            if leaf.label in self._rules.quotes and leaf.word in _QUOTATION_MARKS
        ]


def keep_quotes_of_both(gold: Line, output: Line) -> None:
    """Keeps in both trees the quotation marks that only one of two different tags deletes.

    Of two side by side evalb keeps one twice, and finds other words; here each is kept once.
    """
    for ours, theirs in itertools.product(output.quotes(), gold.quotes()):
        same_place = sum(output.kept[:ours]) == sum(gold.kept[:theirs])
        if same_place and output.kept[ours] != gold.kept[theirs]:
            output.kept[ours] = gold.kept[theirs] = True


def matches(gold: Line, output: Line, rules: Rules) -> list[tuple[Bracket, Bracket]]:
    """Pairs brackets of the gold tree with equal ones of the output."""
    pairs, left = [], output.brackets()
    for bracket in gold.brackets():
        for index, other in enumerate(left):
            if (bracket.start, bracket.end) == (other.start, other.end) and (
                not rules.labelled or rules.same_label(bracket.label, other.label)
            ):
                pairs.append((bracket, left.pop(index)))
                break
    return pairs


def crossings(gold: Sequence[Bracket], output: Sequence[Bracket]) -> int:
    """Counts the brackets of the output that cross one or more of the gold tree's."""
    return sum(any(_cross(one, other) for other in gold) for one in output)


def _cross(one: Bracket, other: Bracket) -> bool:
    """Tells whether they share words and each has words that the other lacks."""
    return (
        one.start < other.start < one.end < other.end
        or other.start < one.start < other.end < one.end
    )
