"""Bracket scores are evalb's: by its published outputs, and by hand on small trees."""

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
    """A line of evalb's table, its columns one space apart."""
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


def parts(lines: list[str]) -> tuple[list[str], list[str]]:
    """evalb's rows of sentences and the columns of the line of totals below them."""
    first, second = (index for index, line in enumerate(lines) if line.startswith("====="))
    return lines[first + 1 : second], lines[second + 1].split()


def test_every_sentence_scores_as_evalb_printed_it(published):
    scores, _, lines = published
    rows, _ = parts(lines)
    for number, (score, expected) in enumerate(zip(scores, rows, strict=True), start=1):
        expected = " ".join(expected.split())
        if score.status == Status.VALID:
            assert row(number, score) == expected
        else:  # the authors' listing counts words there, later builds none
            assert without_words(row(number, score)) == without_words(expected)


def test_the_totals_are_those_evalb_printed(published):
    scores, _, lines = published
    _, columns = parts(lines)
    del columns[5]  # the crossings: the authors' listings add them up wrong, 36 to 0
    names = ("matched", "gold", "output", "words", "correct_tags")
    totals = [sum(getattr(score, name) for score in scores) for name in names]
    assert [int(column) for column in columns[2:7]] == totals


@pytest.mark.parametrize("part", ["all", "short"])
def test_every_figure_of_the_summary_is_the_one_evalb_printed(published, part):
    scores, rules, lines = published
    middle = lines.index(f"-- len<={rules.cutoff} --")
    if part == "all":
        lines = lines[:middle]
    else:
        lines = lines[middle:]
        scores = [score for score in scores if score.length <= rules.cutoff]
    found = summarise(scores)
    figures = [line.partition("=") for line in lines if " = " in line]
    assert len(figures) >= len(SUMMARY) - 1  # the authors' listing has no F
    for name, _, value in figures:
        figure = getattr(found, SUMMARY[name.strip()])
        assert (f"{figure:.2f}" if "." in value else str(figure)) == value.strip(), name


def score(gold: str, output: str, rules: Rules = COLLINS) -> SentenceScore:
    return score_sentence(read_line(gold), read_line(output), rules)


def test_labels_end_at_a_hyphen_or_equals_sign():
    found = score("(S (NP-SBJ-1 (N a)) (VP=2 (V b)))", "(S (NP (N a)) (VP (V b)))")
    assert (found.matched, found.gold, found.output) == (3, 3, 3)


def test_equal_brackets_match_once_each():
    found = score("(NP (NP (N a)))", "(NP (NP (NP (N a))))")
    assert (found.matched, found.gold, found.output) == (2, 2, 3)


def test_equivalent_labels_match():
    assert score("(S (ADVP (R a)) (V b))", "(S (PRT (R a)) (V b))").matched == 2
    assert score("(S (ADVP (R a)) (V b))", "(S (PRT (R a)) (V b))", Rules()).matched == 1


def test_what_counts_as_a_deleted_label_is_not_counted():
    rules = dataclasses.replace(COLLINS, equal_labels=frozenset((frozenset(("TOP", "S1")),)))
    assert score("(TOP (S (N a)))", "(S1 (S (N a)))", rules).output == 1


def test_equivalent_words_are_no_error():
    rules = Rules(equal_words=frozenset((frozenset(("a", "A")),)))
    assert score("(S (N a))", "(S (N A))", rules).status == Status.VALID
    assert score("(S (N a))", "(S (N A))").status == Status.ERROR


def test_punctuation_moves_no_position():
    found = score("(S (NP (N a)) (, ,) (VP (V b)))", "(S (NP (N a) (, ,)) (VP (V b)))")
    assert found.matched == found.gold == found.output == 3
    assert (found.length, found.words) == (3, 2)


def test_a_constituent_of_traces_only_is_not_counted():
    assert score("(S (NP (-NONE- *)) (VP (V b)))", "(S (VP (V b)))").gold == 2


def test_the_root_is_not_counted_under_its_name_top():
    assert score("(TOP (S (N a)))", "(ROOT (S (N a)))").gold == 1
    assert score("(TOP (S (N a)))", "(ROOT (S (N a)))").output == 2


def test_a_bracket_crosses_once_however_many_it_crosses():
    gold = "(S (A (X a) (X b)) (B (X c) (X d)))"
    assert score(gold, "(S (X a) (C (X b) (X c)) (X d))").crossing == 1


@pytest.mark.parametrize("inner", ["(C (X b) (X c))", "(X b) (C (X c))", "(C (X b)) (X c)"])
def test_a_bracket_inside_or_outside_another_does_not_cross_it(inner):
    gold = "(S (X a) (B (X b) (X c)) (X d))"
    assert score(gold, f"(S (X a) (B {inner}) (X d))").crossing == 0
    assert score(gold, "(S (X a) (X b) (C (X c) (X d)))").crossing == 1


def test_unlabelled_brackets_match_by_their_words_alone():
    rules = dataclasses.replace(COLLINS, labelled=False)
    assert score("(S (NP (N a)) (V b))", "(A (B (N a)) (V b))", rules).matched == 2
    assert score("(S (NP (N a)) (V b))", "(A (B (N a)) (V b))").matched == 0


def test_traces_do_not_count_in_the_length_and_punctuation_does():
    found = score("(S (NP (-NONE- *)) (V b) (. .))", "(S (V b) (. .))")
    assert (found.length, found.words) == (2, 1)


def test_an_output_without_words_is_skipped():
    assert score("(S (N a))", "").status == Status.SKIPPED
    assert score("(S (N a))", "(S (. .))").status == Status.SKIPPED


def test_an_output_that_is_no_tree_is_an_error_and_a_broken_gold_tree_stops():
    scores = score_lines(["(S (N a) (N b))"] * 3, ["(S (N a) (N b))", "", "(S (N a)"], COLLINS)
    assert [found.status for found in scores] == [Status.VALID, Status.SKIPPED, Status.ERROR]
    assert [found.length for found in scores] == [2, 2, 2]
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
def test_other_words_make_an_error_that_says_which(output, problem):
    found = score("(S (N a))", output)
    assert (found.status, found.problem) == (Status.ERROR, problem)
    assert (found.gold, found.output, found.words) == (0, 0, 0)


def test_a_quotation_mark_mistagged_in_either_tree_is_kept_in_both():
    rules = dataclasses.replace(COLLINS, quotes=frozenset(("''", "POS")))
    quote, possessive = "(S (NP (N a)) ('' ') (V b))", "(S (NP (N a) (POS ')) (V b))"
    for one, other in ((quote, possessive), (possessive, quote)):
        found = score(one, other, rules)
        assert (found.status, found.words, found.matched) == (Status.VALID, 3, 1)
        assert score(one, other).status == Status.ERROR
    assert score(quote, quote, rules).words == 2


def test_of_other_words_only_the_tag_decides_whether_they_are_kept():
    rules = dataclasses.replace(COLLINS, quotes=frozenset(("''", "POS")))
    found = score("(S (N a) ('' x))", "(S (N a) (POS x))", rules)
    assert found.status == Status.ERROR


def test_a_quotation_mark_elsewhere_is_not_paired():
    rules = dataclasses.replace(COLLINS, quotes=frozenset(("''", "POS")))
    found = score("(S ('' ') (N a) ('' '))", "(S (N a) (POS '))", rules)
    assert (found.status, found.words) == (Status.VALID, 2)


def test_f1_is_of_all_brackets_and_not_the_mean_of_sentences():
    found = summarise([SentenceScore(1, matched=1, gold=1, output=1), SentenceScore(1, gold=9)])
    assert found.recall == 10 and found.precision == 100
    assert found.f1 == pytest.approx(2 * 10 * 100 / 110)


def test_sentences_are_counted_by_what_became_of_them():
    found = summarise(
        [
            SentenceScore(4, Status.ERROR),
            SentenceScore(4, Status.SKIPPED),
            SentenceScore(4, matched=3, gold=3, output=3, crossing=0),
            SentenceScore(4, matched=3, gold=3, output=4, crossing=2),
            SentenceScore(4, matched=3, gold=4, output=3, crossing=3),
            SentenceScore(4, matched=2, gold=3, output=3, crossing=0),
        ]
    )
    assert (found.sentences, found.errors, found.skipped, found.valid) == (6, 1, 1, 4)
    assert (found.complete_match, found.no_crossing) == (25, 50)
    assert (found.two_or_less_crossing, found.average_crossing) == (75, 1.25)


def test_no_sentence_at_all_scores_zero():
    assert summarise([]).f1 == 0
