"""Brackets of trees by the rules of COLLINS.prm: those that count, and matching.

The standard rules for comparing English parsers since Collins (1997).
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_transformer.tasks.parsing.trees import Tree

# Words with these tags are removed; brackets with these labels are not counted, but their
# children are.
DELETED = frozenset(("TOP", "-NONE-", ",", ":", "``", "''", "."))
DELETED_FOR_LENGTH = "-NONE-"  # words with this tag do not count in a sentence's length
EQUAL = frozenset(("ADVP", "PRT"))  # labels, or tags, that count as the same
CUTOFF = 40  # the longest sentence of the second summary, in words


def same_label(one: str, other: str) -> bool:
    """Tells whether two labels count as equal."""
    return one == other or {one, other} == EQUAL


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

    def __init__(self, trees: Sequence[Tree]):
        self.leaves: list[Tree] = []
        self._brackets: list[Bracket | None] = []
        for tree in trees:
            self._add(tree)
        self.kept = [leaf.label not in DELETED for leaf in self.leaves]

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
            if bracket.start < bracket.end and bracket.label not in DELETED
        ]


def matches(gold: Line, output: Line) -> list[tuple[Bracket, Bracket]]:
    """Pairs brackets of the gold tree with equal ones of the output."""
    pairs, unmatched = [], output.brackets()
    for bracket in gold.brackets():
        for index, other in enumerate(unmatched):
            same_words = (bracket.start, bracket.end) == (other.start, other.end)
            if same_words and same_label(bracket.label, other.label):
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
