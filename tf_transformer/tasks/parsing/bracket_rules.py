"""Brackets of trees by the rules of evalb: selection of those that count, and matching."""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tf_transformer.errors import UserError, shortened
from tf_transformer.tasks.parsing.trees import Tree

# Words that may be mistagged quotation marks.
_QUOTATION_MARKS = frozenset(("'", '"', "/"))


@dataclass(frozen=True)
class Rules:
    """Rules for comparing two trees: deleted labels, and labels and words treated as equal.

    Attributes:
        labelled: whether matching brackets must have equal labels.
        cutoff: the longest sentence of the second summary, in words.
        delete: words with these tags are removed; brackets with these labels are not counted,
            but their children are.
        delete_for_length: words with these tags do not count in a sentence's length.
        quotes: tags that a mistagged quotation mark may have.
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


# The standard rules for comparing English parsers since Collins (1997).
COLLINS = Rules(
    delete=frozenset(("TOP", "-NONE-", ",", ":", "``", "''", ".")),
    delete_for_length=frozenset(("-NONE-",)),
    equal_labels=frozenset((frozenset(("ADVP", "PRT")),)),
)

# Fields of `Rules`, and the types of the numbers, by evalb's names.
_NUMBERS = {"LABELED": ("labelled", bool), "CUTOFF_LEN": ("cutoff", int)}
_LABELS = {
    "DELETE_LABEL": "delete",
    "DELETE_LABEL_FOR_LENGTH": "delete_for_length",
    "QUOTE_LABEL": "quotes",
}
_PAIRS = {"EQ_LABEL": "equal_labels", "EQ_WORD": "equal_words"}
# Settings of evalb's output and its tolerance of errors, which do not affect the scores.
_IGNORED = ("DEBUG", "MAX_ERROR")


def read_rules(lines: Iterable[str], name: str = "parameters") -> Rules:
    """Reads a parameter file of evalb, such as COLLINS.prm.

    A line is a name and its values; lines that begin with # are comments. DEBUG and MAX_ERROR
    are ignored.

    Raises:
        UserError: for an unknown name or a wrong number of values; the message names the line.
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
    if key not in (*_NUMBERS, *_LABELS, *_PAIRS):
        known = ", ".join((*_NUMBERS, *_LABELS, *_PAIRS, *_IGNORED))
        raise UserError(
            f"{place}: a line must begin with one of {known}. Received: {shortened(key)}."
        )
    received = shortened(" ".join(values)) or "none"
    if key in _NUMBERS:
        if len(values) != 1 or not re.fullmatch("[0-9]{1,9}", values[0]):
            raise UserError(
                f"{place}: {key} must have one whole number below 10**9. Received: {received}."
            )
        field, kind = _NUMBERS[key]
        return replace(rules, **{field: kind(int(values[0]))})
    expected = 2 if key in _PAIRS else 1
    if len(values) != expected:
        raise UserError(
            f"{place}: {key} must have {expected} value{'s' * (expected - 1)}. "
            f"Received: {received}."
        )
    field = (_LABELS | _PAIRS)[key]
    value = frozenset(values) if key in _PAIRS else values[0]
    return replace(rules, **{field: getattr(rules, field) | {value}})


# --- Spans --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Bracket:
    """A constituent: its category, and its words from `start` to `end - 1`.

    `index` is its position in the preorder of the line.
    """

    label: str
    start: int
    end: int
    index: int


class Line:
    """Words and brackets of the trees on a line; words deleted by the rules are masked out."""

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
        index, start = len(self._brackets), len(self.leaves)
        self._brackets.append(None)  # filled in once its end is known
        for child in tree.children:
            self._add(child)
        label = tree.label.partition("-")[0].partition("=")[0]
        self._brackets[index] = Bracket(label, start, len(self.leaves), index)

    def words(self) -> list[str]:
        """Returns the words that are kept."""
        return [leaf.word or "" for leaf in itertools.compress(self.leaves, self.kept)]

    def tags(self) -> list[str]:
        """Returns the tags of the words that are kept."""
        return [leaf.label for leaf in itertools.compress(self.leaves, self.kept)]

    def brackets(self) -> list[Bracket]:
        """Returns the brackets that count, over the words that are kept."""
        positions = [0, *itertools.accumulate(self.kept)]
        brackets = (
            replace(bracket, start=positions[bracket.start], end=positions[bracket.end])
            for bracket in self._brackets
            if bracket is not None
        )
        return [
            bracket
            for bracket in brackets
            if bracket.start < bracket.end and self._rules.counts(bracket.label)
        ]

    def quotes(self) -> list[int]:
        """Returns the indices of quotation marks tagged with one of `Rules.quotes`."""
        return [
            index
            for index, leaf in enumerate(self.leaves)
            if leaf.label in self._rules.quotes and leaf.word in _QUOTATION_MARKS
        ]


def keep_quotes_of_both(gold: Line, output: Line) -> None:
    """Keeps in both trees the quotation marks that only one of the two deletes.

    The trees tag them differently. If two marks are adjacent, evalb keeps one of them twice and
    then reports differing words; here each is kept once.
    """
    for ours, theirs in itertools.product(output.quotes(), gold.quotes()):
        same_position = sum(output.kept[:ours]) == sum(gold.kept[:theirs])
        if same_position and output.kept[ours] != gold.kept[theirs]:
            output.kept[ours] = gold.kept[theirs] = True


def matches(gold: Line, output: Line, rules: Rules) -> list[tuple[Bracket, Bracket]]:
    """Pairs brackets of the gold tree with equal ones of the output."""
    pairs, unmatched = [], output.brackets()
    for bracket in gold.brackets():
        for index, other in enumerate(unmatched):
            if (bracket.start, bracket.end) == (other.start, other.end) and (
                not rules.labelled or rules.same_label(bracket.label, other.label)
            ):
                pairs.append((bracket, unmatched.pop(index)))
                break
    return pairs


def crossings(gold: Sequence[Bracket], output: Sequence[Bracket]) -> int:
    """Counts the brackets of the output that cross at least one bracket of the gold tree."""
    return sum(any(_cross(one, other) for other in gold) for one in output)


def _cross(one: Bracket, other: Bracket) -> bool:
    """Tells whether two brackets overlap and neither contains the other."""
    return (
        one.start < other.start < one.end < other.end
        or other.start < one.start < other.end < one.end
    )
