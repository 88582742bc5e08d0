"""Labelled bracketing of trees (PARSEVAL, Black et al. 1991), figure for figure as by evalb."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum

from tf_transformer.errors import UserError
from tf_transformer.strings import strings
from tf_transformer.tasks.parsing.bracket_rules import (
    Line,
    Rules,
    crossings,
    keep_quotes_of_both,
    matches,
)
from tf_transformer.tasks.parsing.trees import Tree, read_line


class Status(IntEnum):
    """Status of a sentence, with evalb's numbers; only valid ones count in the scores."""

    VALID = 0
    ERROR = 1  # the words differ, or the output is no tree
    SKIPPED = 2  # the output has no words


@dataclass(frozen=True)
class SentenceScore:
    """Counts of one sentence.

    Attributes:
        length: words of the gold tree, by the rules for the length.
        status: valid, or why the sentence is left out of the scores; its counts are then 0.
        matched: brackets of the gold tree that the output has.
        gold: brackets of the gold tree.
        output: brackets of the output.
        crossing: brackets of the output that cross one of the gold tree's.
        words: words compared.
        correct_tags: words whose tags agree.
        problem: what was wrong with a sentence that is an error; "" for others.
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
    """Scores of a corpus; all but the counts in percent, over valid sentences.

    Precision and recall are those of all brackets together, not means over sentences.
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
        """Number of sentences that count in the scores."""
        return self.sentences - self.errors - self.skipped


def score_lines(
    gold: Sequence[str], output: Sequence[str], rules: Rules, *, gold_name: str = "gold"
) -> list[SentenceScore]:
    """Compares two files, each with the tree of a sentence on a line.

    A blank line of output is skipped; one that is no tree is an error, as other words are.

    Raises:
        UserError: if a gold tree is not well-formed, with its line and column in `gold_name`.
        ValueError: if the numbers of lines differ.
    """
    scores = []
    columns = strings("gold", gold), strings("output", output)
    for number, (right, line) in enumerate(zip(*columns, strict=True), start=1):
        gold_trees = read_line(right, gold_name, number)
        try:
            scores.append(score_sentence(gold_trees, read_line(line, "output", number), rules))
        except UserError as error:
            length = score_sentence(gold_trees, (), rules).length
            scores.append(SentenceScore(length, Status.ERROR, problem=str(error)))
    return scores


def score_sentence(gold: Sequence[Tree], output: Sequence[Tree], rules: Rules) -> SentenceScore:
    """Compares the trees of one line of the gold file with those of the same line of output.

    Words that the rules delete are taken out before positions are counted, in both; a bracket
    without words goes as well. A label ends before its first - or =. Brackets alike over the
    same words are a multiset: the smaller number matches.
    """
    gold_line, output_line = Line(gold, rules), Line(output, rules)
    length = sum(leaf.label not in rules.delete_for_length for leaf in gold_line.leaves)
    if not any(output_line.kept):
        return SentenceScore(length, Status.SKIPPED)
    if sum(gold_line.kept) != sum(output_line.kept):
        keep_quotes_of_both(gold_line, output_line)
    problem = _difference(gold_line.words(), output_line.words(), rules)
    if problem:
        return SentenceScore(length, Status.ERROR, problem=problem)
    gold_brackets, output_brackets = gold_line.brackets(), output_line.brackets()
    return SentenceScore(
        length,
        matched=len(matches(gold_line, output_line, rules)),
        gold=len(gold_brackets),
        output=len(output_brackets),
        crossing=crossings(gold_brackets, output_brackets),
        words=sum(gold_line.kept),
        correct_tags=sum(map(rules.same_label, gold_line.tags(), output_line.tags())),
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


def _difference(gold: list[str], output: list[str], rules: Rules) -> str:
    """Describes how the words differ; "" if they do not."""
    if len(gold) != len(output):
        return f"{len(gold)} words in the gold tree, {len(output)} in the output"
    for one, other in zip(gold, output, strict=True):
        if not rules.same_word(one, other):
            return f"{one} in the gold tree, {other} in the output"
    return ""
