"""Scores of a classification, and the picture of confused classes."""

import random

import pytest

from tf_transformer.tasks.classification.metrics import (
    MOST_IN_MATRIX,
    ClassScore,
    draw_confusion,
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


def test_mistakes_are_listed_most_frequent_first():
    gold, predicted = ["a", "b", "b", "c", "c", "b"], ["b", "a", "a", "a", "c", "c"]
    assert score_classes(gold, predicted, ["a", "b", "c"]).confusions() == [
        ("b", "a", 2),
        ("a", "b", 1),
        ("b", "c", 1),
        ("c", "a", 1),
    ]


def test_the_table_has_percentages_that_line_up():
    assert format_scores(score_classes(GOLD, PREDICTED, ["a", "b", "c"])) == (
        "   precision  recall      F1  sentences\n"
        "a      50.00   66.67   57.14          3\n"
        "b      50.00   50.00   50.00          2\n"
        "c       0.00    0.00    0.00          1\n"
        "accuracy 50.00 (3 of 6)  macro F1 35.71\n"
    )


@pytest.mark.parametrize(("gold", "predicted"), [([], []), (["a"], ["a", "a"])])
def test_different_numbers_of_labels_or_none_are_an_error(gold, predicted):
    with pytest.raises(ValueError, match="of equal length, at least 1"):
        score_classes(gold, predicted, ["a"])


FEW = (["a", "a", "b", "b"], ["a", "b", "b", "b"], ["a", "b"])


def many(mistakes: int = 5) -> tuple[list[str], list[str], list[str]]:
    labels = [f"class {number}" for number in range(MOST_IN_MATRIX + 1)]
    return [labels[3]] * 9, [labels[3]] * (9 - mistakes) + [labels[7]] * mistakes, labels


def draw(path, data):
    pytest.importorskip("matplotlib")
    draw_confusion(score_classes(*data), path)
    return path


def text_of(data, folder) -> str:
    """The text of an SVG, which matplotlib keeps in comments beside its outlines."""
    return draw(folder / "c.svg", data).read_text("utf-8")


@pytest.mark.parametrize("data", [FEW, many()])
def test_a_picture_needs_no_colour(tmp_path, data):
    images = pytest.importorskip("matplotlib.image")
    pixels = images.imread(draw(tmp_path / "c.png", data))[..., :3]
    assert pixels.max() == 1 and pixels.min() < 0.1
    assert (abs(pixels - pixels[..., :1]) < 0.02).all()


def test_a_matrix_shows_every_label_and_count(tmp_path):
    text = text_of((["a"] * 12 + ["b"], ["a"] * 13, ["a", "b", "idle"]), tmp_path)
    for shown in ("12", "1", "idle", "predicted label", "correct label", "accuracy 92.31"):
        assert f"<!-- {shown}" in text, shown


def test_for_many_classes_the_picture_lists_the_mistakes(tmp_path):
    text = text_of(many(), tmp_path)
    assert "class 3 \N{RIGHTWARDS ARROW} class 7" in text
    assert "the 1 most frequent of 1 kinds of mistake: 5 of 5 mistakes" in text
    assert "class 9" not in text


def test_mistakes_that_occur_once_are_shown_only_if_all_do(tmp_path):
    gold, predicted, labels = many()
    with_single = [*gold, labels[9]], [*predicted, labels[1]], labels
    assert "class 9" not in text_of(with_single, tmp_path)
    alone = [labels[9]], [labels[1]], labels
    assert "class 9 \N{RIGHTWARDS ARROW} class 1" in text_of(alone, tmp_path)


def test_a_picture_is_drawn_even_without_mistakes(tmp_path):
    assert "0 of 0 mistakes" in text_of(many(0), tmp_path)
