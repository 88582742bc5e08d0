"""Scores of a classification."""

import random

import pytest

from tf_transformer.tasks.classification.metrics import (
    ClassScore,
    format_scores,
    score_classes,
)

GOLD = ["a", "a", "a", "b", "b", "c"]
PREDICTED = ["a", "a", "b", "b", "a", "a"]


def f1_by_hand(gold, predicted, label) -> float:
    pairs = list(zip(gold, predicted, strict=True))
    hits = pairs.count((label, label))
    if not hits:
        return 0.0
    precision, recall = hits / predicted.count(label), hits / gold.count(label)
    return 2 * precision * recall / (precision + recall)


def test_every_class_has_its_precision_recall_and_f1():
    scores = score_classes(GOLD, PREDICTED, ["a", "b", "c"])
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
    gold, predicted = (rng.choices(labels[: 3 + seed], k=30) for _ in range(2))
    occur = {*gold, *predicted}
    expected = sum(f1_by_hand(gold, predicted, label) for label in occur) / len(occur)
    assert score_classes(gold, predicted, labels).macro_f1 == pytest.approx(expected)


def test_a_class_that_does_not_occur_has_zeros_and_does_not_count():
    scores = score_classes(["a", "b"], ["a", "b"], ["a", "b", "never"])
    assert scores.macro_f1 == scores.accuracy == 1
    assert scores.rows()[2] == ClassScore("never", 0, 0, 0, 0)


def test_the_table_has_percentages_that_line_up():
    assert format_scores(score_classes(GOLD, PREDICTED, ["a", "b", "c"])) == (
        "      precision    recall     F1    sentences\n"
        "a         50.00     66.67  57.14            3\n"
        "b         50.00     50.00  50.00            2\n"
        "c          0.00      0.00   0.00            1\n"
        "accuracy 50.00 (3 of 6)  macro F1 35.71\n"
    )


@pytest.mark.parametrize(("gold", "predicted"), [([], []), (["a"], ["a", "a"])])
def test_different_numbers_of_labels_or_none_are_an_error(gold, predicted):
    with pytest.raises(ValueError, match="of equal length, at least 1"):
        score_classes(gold, predicted, ["a"])
