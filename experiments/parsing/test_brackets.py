"""Bracket scores equal evalb's published ones, and those of small trees by hand."""

import pytest
from helpers import lines_of, shared_data

from experiments.parsing.brackets import (
    CUTOFF,
    DELETED,
    DELETED_FOR_LENGTH,
    EQUAL,
    SentenceScore,
    Status,
    score_lines,
    score_sentence,
    summarise,
)
from experiments.parsing.trees import read_line
from tf_transformer import UserError

SUMMARY = {
    "Number of sentence": "sentences",
    "Number of Error sentence": "errors",
    "Number of Skip  sentence": "skipped",
    "Number of Valid sentence": "valid",
    "Bracketing Recall": "recall",
    "Bracketing Precision": "precision",
    "Bracketing FMeasure": "f1",
    "Complete match": "complete_match",
    "Average crossing": "average_crossing",
    "No crossing": "no_crossing",
    "2 or less crossing": "two_or_less_crossing",
    "Tagging accuracy": "tagging_accuracy",
}


@pytest.fixture(scope="module")
def published() -> tuple[list[SentenceScore], list[str]]:
    """Our scores of 280 trees of GUM, and the lines that evalb printed with COLLINS.prm."""
    folder = shared_data("evalb-check")
    names = ("gum-dev280.gld.gz", "gum-dev280.tst.gz", "gum-dev280.COLLINS.rsl")
    gold, output, lines = (lines_of(folder / name) for name in names)
    return score_lines(gold, output), lines


def test_the_rules_are_those_of_the_parameter_file():
    settings = {
        "CUTOFF_LEN": {str(CUTOFF)},
        "LABELED": {"1"},
        "DELETE_LABEL": DELETED,
        "DELETE_LABEL_FOR_LENGTH": {DELETED_FOR_LENGTH},
        "EQ_LABEL": EQUAL,
    }
    read = {name: set() for name in settings}
    for line in lines_of(shared_data("evalb-check") / "COLLINS.prm"):
        name, *values = line.split() or ["#"]
        if not name.startswith("#") and name not in ("DEBUG", "MAX_ERROR"):
            read[name].update(values)
    assert read == settings


def row(number: int, score: SentenceScore) -> str:
    """Formats a score as a line of evalb's table, with single spaces between columns."""
    recall = 100 * score.matched / score.gold if score.gold else 0
    precision = 100 * score.matched / score.output if score.output else 0
    accuracy = 100 * score.correct_tags / score.words if score.words else 0
    return (
        f"{number} {score.length} {score.status} {recall:.2f} {precision:.2f} "
        f"{score.matched} {score.gold} {score.output} {score.crossing} "
        f"{score.words} {score.correct_tags} {accuracy:.2f}"
    )


def test_every_sentence_has_the_score_that_evalb_printed(published):
    scores, lines = published
    first, last = (index for index, line in enumerate(lines) if line.startswith("====="))
    rows = lines[first + 1 : last]
    for number, (score, expected) in enumerate(zip(scores, rows, strict=True), start=1):
        expected = " ".join(expected.split())
        assert row(number, score) == expected


@pytest.mark.parametrize("part", ["all", "short"])
def test_every_figure_of_the_summary_is_the_one_evalb_printed(published, part):
    scores, lines = published
    middle = lines.index(f"-- len<={CUTOFF} --")
    if part == "all":
        lines = lines[:middle]
    else:
        lines = lines[middle:]
        scores = [score for score in scores if score.length <= CUTOFF]
    summary = summarise(scores)
    figures = [line.partition("=") for line in lines if " = " in line]
    assert len(figures) >= len(SUMMARY)
    for name, _, value in figures:
        figure = getattr(summary, SUMMARY[name.strip()])
        assert (f"{figure:.2f}" if "." in value else str(figure)) == value.strip(), name


def score(gold: str, output: str) -> SentenceScore:
    return score_sentence(read_line(gold), read_line(output))


@pytest.mark.parametrize(
    ("gold", "output", "counts"),
    [
        ("(S (NP-SBJ-1 (N a)) (VP=2 (V b)))", "(S (NP (N a)) (VP (V b)))", (3, 3, 3)),
        ("(NP (NP (N a)))", "(NP (NP (NP (N a))))", (2, 2, 3)),
        ("(S (NP (N a)) (, ,) (VP (V b)))", "(S (NP (N a) (, ,)) (VP (V b)))", (3, 3, 3)),
        ("(S (NP (-NONE- *)) (VP (V b)))", "(S (VP (V b)))", (2, 2, 2)),
        ("(TOP (S (N a)))", "(ROOT (S (N a)))", (1, 1, 2)),
    ],
    ids=["function tags", "equal brackets", "punctuation", "traces", "root"],
)
def test_matched_gold_and_output_brackets_are_counted(gold, output, counts):
    result = score(gold, output)
    assert (result.matched, result.gold, result.output) == counts


def test_equivalent_labels_match():
    assert score("(S (ADVP (R a)) (V b))", "(S (PRT (R a)) (V b))").matched == 2
    assert score("(S (ADVP (R a)) (V b))", "(S (ADJP (R a)) (V b))").matched == 1


def test_an_output_without_words_is_skipped():
    assert score("(S (N a))", "").status == Status.SKIPPED
    assert score("(S (N a))", "(S (. .))").status == Status.SKIPPED


def test_a_broken_tree_is_an_error_in_the_output_and_refused_in_the_gold_file():
    scores = score_lines(["(S (N a) (N b))"] * 3, ["(S (N a) (N b))", "", "(S (N a)"])
    assert [one.status for one in scores] == [Status.VALID, Status.SKIPPED, Status.ERROR]
    assert [one.length for one in scores] == [2, 2, 2]
    assert scores[2].problem.startswith("output:3:1: ")
    with pytest.raises(UserError, match="^my.gld:2:10: not a well-formed tree"):
        score_lines(["(S (N a))", "(S (N a)))"], ["", ""], gold_name="my.gld")


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("(S (N a) (N b))", "1 words in the gold tree, 2 in the output"),
        ("(S (N b))", "a in the gold tree, b in the output"),
    ],
)
def test_differing_words_are_an_error_that_names_them(output, problem):
    result = score("(S (N a))", output)
    assert (result.status, result.problem) == (Status.ERROR, problem)
    assert (result.gold, result.output, result.words) == (0, 0, 0)
