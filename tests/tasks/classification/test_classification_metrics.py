"""Accuracy and F1 of classes against their definitions, counted by hand."""

import random

import pytest

from tf_transformer.tasks.classification.metrics import ClassScore, format_scores, score_classes

GOLD = ["a", "a", "a", "b", "b", "c"]
GIVEN = ["a", "a", "b", "b", "a", "a"]


def f1_by_hand(gold, given, label) -> float:
    pairs = list(zip(gold, given, strict=True))
    hits = pairs.count((label, label))
    if not hits:
        return 0.0
    precision, recall = hits / given.count(label), hits / gold.count(label)
    return 2 * precision * recall / (precision + recall)


def test_every_class_has_its_precision_recall_and_f1():
    scores = score_classes(GOLD, GIVEN, ["a", "b", "c"])
    assert scores.rows() == [
        ClassScore("a", 2 / 4, 2 / 3, pytest.approx(4 / 7), 3),
        ClassScore("b", 1 / 2, 1 / 2, 1 / 2, 2),
        ClassScore("c", 0, 0, 0, 1),
    ]
    assert scores.accuracy == 3 / 6
    assert scores.macro_f1 == pytest.approx((4 / 7 + 1 / 2 + 0) / 3)


@pytest.mark.parametrize("seed", range(5))
def test_macro_f1_is_the_mean_over_the_classes_that_occur(seed):
    rng = random.Random(seed)
    labels = list("abcdefgh")
    gold, given = (rng.choices(labels[: 3 + seed], k=30) for _ in range(2))
    occur = {*gold, *given}
    expected = sum(f1_by_hand(gold, given, label) for label in occur) / len(occur)
    assert score_classes(gold, given, labels).macro_f1 == pytest.approx(expected)


def test_a_class_that_does_not_occur_has_zeros_and_does_not_count():
    scores = score_classes(["a", "b"], ["a", "b"], ["a", "b", "never"])
    assert scores.macro_f1 == scores.accuracy == 1
    assert scores.rows()[2] == ClassScore("never", 0, 0, 0, 0)


def test_mistakes_are_listed_most_frequent_first():
    gold, given = ["a", "b", "b", "c", "c", "b"], ["b", "a", "a", "a", "c", "c"]
    assert score_classes(gold, given, ["a", "b", "c"]).confusions() == [
        ("b", "a", 2),
        ("a", "b", 1),
        ("b", "c", 1),
        ("c", "a", 1),
    ]


def test_the_table_has_percentages_that_line_up():
    assert format_scores(score_classes(GOLD, GIVEN, ["a", "b", "c"])) == (
        "   precision  recall      F1  sentences\n"
        "a      50.00   66.67   57.14          3\n"
        "b      50.00   50.00   50.00          2\n"
        "c       0.00    0.00    0.00          1\n"
        "accuracy 50.00 (3 of 6)  macro F1 35.71\n"
    )


@pytest.mark.parametrize(("gold", "given"), [([], []), (["a"], ["a", "a"])])
def test_sentences_without_labels_are_a_programming_error(gold, given):
    with pytest.raises(ValueError, match="of equal length, at least 1"):
        score_classes(gold, given, ["a"])
