"""Brackets as labels over spans of words, and their matches between two trees, as by evalb."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tf_transformer.tasks.parsing.bracket_rules import Rules
from tf_transformer.tasks.parsing.trees import Tree

# What may be a quotation mark under a wrong tag.
_QUOTATION_MARKS = frozenset(("'", '"', "/"))


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
        return [leaf.word for leaf in itertools.compress(self.leaves, self.kept)]

    def tags(self) -> list[str]:
        """Returns the tags of the words that are kept."""
        return [leaf.label for leaf in itertools.compress(self.leaves, self.kept)]

    def brackets(self) -> list[Bracket]:
        """Returns the brackets that count, over the words that are kept."""
        position = [0, *itertools.accumulate(self.kept)]
        brackets = (
            replace(bracket, start=position[bracket.start], end=position[bracket.end])
            for bracket in self._brackets
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
