"""Comparison of predicted trees with gold trees: evalb's scores.

The scores are labelled bracketing (PARSEVAL, Black et al. 1991) by the rules of COLLINS.prm,
the standard for English since Collins (1997), identical to those of evalb.
"""

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from experiments.parsing.trees import Tree, read_line
from tf_transformer import UserError

# Words with these tags are removed; brackets with these labels are not counted, but their
# children are.
DELETED = frozenset(("TOP", "-NONE-", ",", ":", "``", "''", "."))
DELETED_FOR_LENGTH = "-NONE-"  # words with this tag do not count in a sentence's length
EQUAL = frozenset(("ADVP", "PRT"))  # labels, or tags, that count as the same
CUTOFF = 40  # the longest sentence of the second summary, in words


def _same_label(one: str, other: str) -> bool:
    """Tells whether two labels, or tags, count as equal."""
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
    """Words and brackets of the trees on a line.

    Attributes:
        leaves: all words, under their tags.
        kept: the words that the rules keep.
        brackets: the brackets that count, in preorder, over the words that are kept.
    """

    def __init__(self, trees: Sequence[Tree]):
        self.leaves = [leaf for tree in trees for leaf in tree.leaves()]
        is_kept = [leaf.label not in DELETED for leaf in self.leaves]
        self.kept = [*itertools.compress(self.leaves, is_kept)]
        positions = [0, *itertools.accumulate(is_kept)]
        spans = _spans(Tree("", tuple(trees)), 0)[1:]
        self.brackets = [
            Bracket(bare, positions[start], positions[end], index)
            for index, (label, start, end) in enumerate(spans)
            if (bare := label.partition("-")[0].partition("=")[0]) not in DELETED
            and positions[start] < positions[end]
        ]


def _spans(tree: Tree, start: int) -> list[tuple[str, int, int]]:
    """Returns label, first word and end of a tree and the constituents in it, in preorder."""
    inner, end = [], start
    for child in tree.children:
        if child.word is None:
            spans = _spans(child, end)
            inner += spans
            end = spans[0][2]
        else:
            end += 1
    return [(tree.label, start, end), *inner]


def matches(gold: Line, output: Line) -> list[tuple[Bracket, Bracket]]:
    """Pairs brackets of the gold tree with equal ones of the output."""
    pairs, unmatched = [], [*output.brackets]
    for bracket in gold.brackets:
        for index, other in enumerate(unmatched):
            same_words = (bracket.start, bracket.end) == (other.start, other.end)
            if same_words and _same_label(bracket.label, other.label):
                pairs.append((bracket, unmatched.pop(index)))
                break
    return pairs


def _cross(one: Bracket, other: Bracket) -> bool:
    """Tells whether two brackets overlap and neither contains the other."""
    return (
        one.start < other.start < one.end < other.end
        or other.start < one.start < other.end < one.end
    )


# --- Scores -----------------------------------------------------------------------------


class Status(IntEnum):
    """Status of a sentence, numbered as in evalb; only valid sentences enter the scores."""

    VALID = 0
    ERROR = 1  # the words differ, or the output is not a tree
    SKIPPED = 2  # the output has no words


@dataclass(frozen=True)
class SentenceScore:
    """Counts of one sentence."""

    length: int  # words of the gold tree that count in the length
    status: Status = Status.VALID  # the counts of invalid sentences are 0
    matched: int = 0  # brackets of the gold tree that the output also has
    gold: int = 0
    output: int = 0
    crossing: int = 0  # brackets of the output that cross one of the gold tree
    words: int = 0
    correct_tags: int = 0
    problem: str = ""  # the error in a sentence with status ERROR


@dataclass(frozen=True)
class Bracketing:
    """Scores of a corpus over its valid sentences, in percent except for counts.

    Precision and recall are computed over all brackets, not averaged over sentences.
    """

    sentences: int
    errors: int
    skipped: int
    recall: float
    precision: float
    f1: float
    complete_match: float
    average_crossing: float
    no_crossing: float
    two_or_less_crossing: float
    tagging_accuracy: float

    @property
    def valid(self) -> int:
        """Number of sentences that enter the scores."""
        return self.sentences - self.errors - self.skipped


def score_lines(
    gold: Sequence[str], output: Sequence[str], *, gold_name: str = "gold"
) -> list[SentenceScore]:
    """Compares the lines of two files, each with the tree of one sentence.

    A blank line of output is skipped; a line that is not a tree or has different words is an
    error. Raises UserError if a gold tree is not well-formed, with its line and column in
    `gold_name`, and ValueError if the numbers of lines differ.
    """
    scores = []
    for number, (gold_line, line) in enumerate(zip(gold, output, strict=True), start=1):
        gold_trees = read_line(gold_line, gold_name, number)
        try:
            scores.append(score_sentence(gold_trees, read_line(line, "output", number)))
        except UserError as error:
            length = score_sentence(gold_trees, ()).length
            scores.append(SentenceScore(length, Status.ERROR, problem=str(error)))
    return scores


def score_sentence(gold: Sequence[Tree], output: Sequence[Tree]) -> SentenceScore:
    """Compares the trees on a line of the gold file with those on the same line of output.

    Words that the rules delete are removed from both before positions are counted, and so are
    brackets left without words. A label ends before its first - or =. If a bracket occurs
    several times, it matches as often as both sides have it.
    """
    gold_line, output_line = Line(gold), Line(output)
    length = sum(leaf.label != DELETED_FOR_LENGTH for leaf in gold_line.leaves)
    if not output_line.kept:
        return SentenceScore(length, Status.SKIPPED)
    if problem := _difference(gold_line.kept, output_line.kept):
        return SentenceScore(length, Status.ERROR, problem=problem)
    tags = ([leaf.label for leaf in line.kept] for line in (gold_line, output_line))
    brackets = output_line.brackets
    return SentenceScore(
        length,
        matched=len(matches(gold_line, output_line)),
        gold=len(gold_line.brackets),
        output=len(brackets),
        crossing=sum(any(_cross(one, two) for two in gold_line.brackets) for one in brackets),
        words=len(gold_line.kept),
        correct_tags=sum(map(_same_label, *tags)),
    )


def summarise(scores: Iterable[SentenceScore]) -> Bracketing:
    """Combines the scores of sentences into those of a corpus."""
    scores = list(scores)
    valid = [score for score in scores if score.status == Status.VALID]

    def total(name: str) -> int:
        return sum(getattr(score, name) for score in valid)

    recall = _percent(total("matched"), total("gold"))
    precision = _percent(total("matched"), total("output"))
    both = precision + recall
    complete = sum(score.matched == score.gold == score.output for score in valid)
    return Bracketing(
        sentences=len(scores),
        errors=sum(score.status == Status.ERROR for score in scores),
        skipped=sum(score.status == Status.SKIPPED for score in scores),
        recall=recall,
        precision=precision,
        f1=2 * precision * recall / both if both else 0.0,
        complete_match=_percent(complete, len(valid)),
        average_crossing=total("crossing") / len(valid) if valid else 0.0,
        no_crossing=_percent(sum(score.crossing == 0 for score in valid), len(valid)),
        two_or_less_crossing=_percent(sum(score.crossing <= 2 for score in valid), len(valid)),
        tagging_accuracy=_percent(total("correct_tags"), total("words")),
    )


def _percent(part: int, whole: int) -> float:
    return 100 * part / whole if whole else 0.0


def _difference(gold: list[Tree], output: list[Tree]) -> str:
    """Describes the first difference between the words; "" if there is none."""
    if len(gold) != len(output):
        return f"{len(gold)} words in the gold tree, {len(output)} in the output"
    for one, other in zip(gold, output, strict=True):
        if one.word != other.word:
            return f"{one.word} in the gold tree, {other.word} in the output"
    return ""
