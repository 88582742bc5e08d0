"""Labelled bracketing scores (PARSEVAL, Black et al. 1991), identical to those of evalb."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.bracket_rules import (
    DELETED_FOR_LENGTH,
    Line,
    crossings,
    matches,
    same_label,
)
from tf_transformer.tasks.parsing.trees import Tree, read_line


class Status(IntEnum):
    """Status of a sentence, numbered as in evalb; only valid sentences enter the scores."""

    VALID = 0
    ERROR = 1  # the words differ, or the output is not a tree
    SKIPPED = 2  # the output has no words


@dataclass(frozen=True)
class SentenceScore:
    """Counts of one sentence.

    Attributes:
        length: words of the gold tree that count in the length.
        status: whether the sentence is valid; the counts of others are 0.
        matched: brackets of the gold tree that the output also has.
        gold: brackets of the gold tree.
        output: brackets of the output.
        crossing: brackets of the output that cross a bracket of the gold tree.
        words: words compared.
        correct_tags: words with the correct tag.
        problem: description of the error in a sentence with status ERROR; "" for others.
    """

    length: int
    status: Status = Status.VALID
    matched: int = 0
    gold: int = 0
    output: int = 0
    crossing: int = 0
    words: int = 0
    correct_tags: int = 0
    problem: str = ""


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
    error.

    Raises:
        UserError: if a gold tree is not well-formed; the message names its line and column in
            `gold_name`.
        ValueError: if the numbers of lines differ.
    """
    scores = []
    pairs = zip(gold, output, strict=True)
    for number, (gold_line, line) in enumerate(pairs, start=1):
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
    if not any(output_line.kept):
        return SentenceScore(length, Status.SKIPPED)
    problem = _difference(gold_line.words(), output_line.words())
    if problem:
        return SentenceScore(length, Status.ERROR, problem=problem)
    gold_brackets, output_brackets = gold_line.brackets(), output_line.brackets()
    return SentenceScore(
        length,
        matched=len(matches(gold_line, output_line)),
        gold=len(gold_brackets),
        output=len(output_brackets),
        crossing=crossings(gold_brackets, output_brackets),
        words=sum(gold_line.kept),
        correct_tags=sum(map(same_label, gold_line.tags(), output_line.tags())),
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


def _difference(gold: list[str], output: list[str]) -> str:
    """Describes the first difference between the words; "" if there is none."""
    if len(gold) != len(output):
        return f"{len(gold)} words in the gold tree, {len(output)} in the output"
    for one, other in zip(gold, output, strict=True):
        if one != other:
            return f"{one} in the gold tree, {other} in the output"
    return ""
