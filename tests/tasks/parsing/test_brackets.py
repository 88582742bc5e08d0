"""Bracket scores equal evalb's published ones, and those of small trees by hand."""

import dataclasses

import pytest
from shared_data import lines_of, shared_data

from tf_transformer.errors import UserError
from tf_transformer.tasks.parsing.bracket_rules import COLLINS, Rules, read_rules
from tf_transformer.tasks.parsing.brackets import (
    SentenceScore,
    Status,
    score_lines,
    score_sentence,
    summarise,
)
from tf_transformer.tasks.parsing.trees import read_line

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

# Gold, output, parameters and what evalb printed, all in evalb-check.
SETS = {
    "sample": ("evalb-sample/sample.gld", "evalb-sample/sample.tst",
               "evalb-sample/sample.prm", "evalb-sample/sample.rerun-2006-build.txt"),
    "sample, authors' listing": ("evalb-sample/sample.gld", "evalb-sample/sample.tst",
               "evalb-sample/sample.prm", "evalb-sample/sample.rsl"),
    "bug": ("evalb-bug/bug.gld", "evalb-bug/bug.tst",
            "evalb-bug/new.prm", "evalb-bug/bug.rsl-new"),
    "gum": ("gum-dev280.gld.gz", "gum-dev280.tst.gz", "COLLINS.prm", "gum-dev280.COLLINS.rsl"),
    "gum, unlabelled": ("gum-dev280.gld.gz", "gum-dev280.tst.gz",
                        "unlabelled", "gum-dev280.unlabelled.rsl"),
}  # fmt: skip


@pytest.fixture(params=SETS)
def published(request) -> tuple[list[SentenceScore], Rules, list[str]]:
    """Our scores of a set, its rules, and the lines that evalb printed."""
    folder = shared_data("evalb-check")
    gold, output, parameters, expected = SETS[request.param]
    if parameters == "unlabelled":
        rules = dataclasses.replace(COLLINS, labelled=False)
    else:
        rules = read_rules(lines_of(folder / parameters))
    scores = score_lines(lines_of(folder / gold), lines_of(folder / output), rules)
    return scores, rules, lines_of(folder / expected)


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


def without_words(row_: str) -> str:
    columns = row_.split()
    return " ".join(columns[:9] + columns[10:])


def test_every_sentence_has_the_score_that_evalb_printed(published):
    scores, _, lines = published
    first, last = (index for index, line in enumerate(lines) if line.startswith("====="))
    rows = lines[first + 1 : last]
    for number, (score, expected) in enumerate(zip(scores, rows, strict=True), start=1):
        expected = " ".join(expected.split())
        if score.status == Status.VALID:
            assert row(number, score) == expected
        else:  # only the authors' listing counts the words of invalid sentences
            assert without_words(row(number, score)) == without_words(expected)


@pytest.mark.parametrize("part", ["all", "short"])
def test_every_figure_of_the_summary_is_the_one_evalb_printed(published, part):
    scores, rules, lines = published
    middle = lines.index(f"-- len<={rules.cutoff} --")
    if part == "all":
        lines = lines[:middle]
    else:
        lines = lines[middle:]
        scores = [score for score in scores if score.length <= rules.cutoff]
    summary = summarise(scores)
    figures = [line.partition("=") for line in lines if " = " in line]
    assert len(figures) >= len(SUMMARY) - 1  # the authors' listing has no F
    for name, _, value in figures:
        figure = getattr(summary, SUMMARY[name.strip()])
        assert (f"{figure:.2f}" if "." in value else str(figure)) == value.strip(), name


def score(gold: str, output: str, rules: Rules = COLLINS) -> SentenceScore:
    return score_sentence(read_line(gold), read_line(output), rules)


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
    assert score("(S (ADVP (R a)) (V b))", "(S (PRT (R a)) (V b))", Rules()).matched == 1


def test_a_label_equal_to_a_deleted_one_is_not_counted():
    rules = dataclasses.replace(COLLINS, equal_labels=frozenset((frozenset(("TOP", "S1")),)))
    assert score("(TOP (S (N a)))", "(S1 (S (N a)))", rules).output == 1


def test_equivalent_words_are_not_an_error():
    rules = Rules(equal_words=frozenset((frozenset(("a", "A")),)))
    assert score("(S (N a))", "(S (N A))", rules).status == Status.VALID
    assert score("(S (N a))", "(S (N A))").status == Status.ERROR


def test_a_bracket_that_crosses_several_others_counts_once():
    gold = "(S (A (X a) (X b)) (B (X c) (X d)))"
    assert score(gold, "(S (X a) (C (X b) (X c)) (X d))").crossing == 1


@pytest.mark.parametrize("inner", ["(C (X b) (X c))", "(X b) (C (X c))", "(C (X b)) (X c)"])
def test_a_bracket_inside_or_outside_another_does_not_cross_it(inner):
    gold = "(S (X a) (B (X b) (X c)) (X d))"
    assert score(gold, f"(S (X a) (B {inner}) (X d))").crossing == 0
    assert score(gold, "(S (X a) (X b) (C (X c) (X d)))").crossing == 1


def test_unlabelled_brackets_match_by_their_words_only():
    rules = dataclasses.replace(COLLINS, labelled=False)
    assert score("(S (NP (N a)) (V b))", "(A (B (N a)) (V b))", rules).matched == 2
    assert score("(S (NP (N a)) (V b))", "(A (B (N a)) (V b))").matched == 0


def test_punctuation_counts_in_the_length_and_traces_do_not():
    result = score("(S (NP (-NONE- *)) (V b) (. .))", "(S (V b) (. .))")
    assert (result.length, result.words) == (2, 1)


def test_an_output_without_words_is_skipped():
    assert score("(S (N a))", "").status == Status.SKIPPED
    assert score("(S (N a))", "(S (. .))").status == Status.SKIPPED


def test_a_broken_tree_is_an_error_in_the_output_and_refused_in_the_gold_file():
    scores = score_lines(["(S (N a) (N b))"] * 3, ["(S (N a) (N b))", "", "(S (N a)"], COLLINS)
    assert [one.status for one in scores] == [Status.VALID, Status.SKIPPED, Status.ERROR]
    assert [one.length for one in scores] == [2, 2, 2]
    assert scores[2].problem.startswith("output:3:1: ")
    with pytest.raises(UserError, match="^my.gld:2:10: not a well-formed tree"):
        score_lines(["(S (N a))", "(S (N a)))"], ["", ""], COLLINS, gold_name="my.gld")


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


WITH_QUOTES = dataclasses.replace(COLLINS, quotes=frozenset(("''", "POS")))


def test_a_quotation_mark_mistagged_in_either_tree_is_kept_in_both():
    quote, possessive = "(S (NP (N a)) ('' ') (V b))", "(S (NP (N a) (POS ')) (V b))"
    for one, other in ((quote, possessive), (possessive, quote)):
        result = score(one, other, WITH_QUOTES)
        assert (result.status, result.words, result.matched) == (Status.VALID, 3, 1)
        assert score(one, other).status == Status.ERROR
    assert score(quote, quote, WITH_QUOTES).words == 2


def test_words_other_than_quotation_marks_are_kept_or_deleted_by_their_tag():
    result = score("(S (N a) ('' x))", "(S (N a) (POS x))", WITH_QUOTES)
    assert result.status == Status.ERROR


def test_quotation_marks_at_different_positions_are_not_paired():
    result = score("(S ('' ') (N a) ('' '))", "(S (N a) (POS '))", WITH_QUOTES)
    assert (result.status, result.words) == (Status.VALID, 2)


def test_f1_is_computed_over_all_brackets_and_not_averaged_over_sentences():
    scores = [SentenceScore(1, matched=1, gold=1, output=1), SentenceScore(1, gold=9)]
    summary = summarise(scores)
    assert summary.recall == 10 and summary.precision == 100
    assert summary.f1 == pytest.approx(2 * 10 * 100 / 110)


def test_sentences_are_counted_by_status_and_crossings():
    summary = summarise(
        [
            SentenceScore(4, Status.ERROR),
            SentenceScore(4, Status.SKIPPED),
            SentenceScore(4, matched=3, gold=3, output=3, crossing=0),
            SentenceScore(4, matched=3, gold=3, output=4, crossing=2),
            SentenceScore(4, matched=3, gold=4, output=3, crossing=3),
            SentenceScore(4, matched=2, gold=3, output=3, crossing=0),
        ]
    )
    counts = summary.sentences, summary.errors, summary.skipped, summary.valid
    assert counts == (6, 1, 1, 4)
    assert (summary.complete_match, summary.no_crossing) == (25, 50)
    assert (summary.two_or_less_crossing, summary.average_crossing) == (75, 1.25)


def test_no_sentences_score_zero():
    assert summarise([]).f1 == 0
