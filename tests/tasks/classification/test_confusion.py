"""The picture of confusions: a matrix of few classes, bars for many."""

import pytest

from tf_transformer.tasks.classification.metrics import score_classes
from tf_transformer.tasks.classification.plot import MOST_IN_MATRIX, draw_confusion

images = pytest.importorskip("matplotlib.image")

FEW = (["a", "a", "b", "b"], ["a", "b", "b", "b"], ["a", "b"])


def many(mistakes: int = 5) -> tuple[list[str], list[str], list[str]]:
    labels = [f"class {number}" for number in range(MOST_IN_MATRIX + 1)]
    return [labels[3]] * 9, [labels[3]] * (9 - mistakes) + [labels[7]] * mistakes, labels


def draw(path, data):
    draw_confusion(score_classes(*data), path)
    return path


def text_of(data, folder) -> str:
    """The text of an SVG, which matplotlib keeps in comments beside its outlines."""
    return draw(folder / "c.svg", data).read_text("utf-8")


@pytest.mark.parametrize("data", [FEW, many()])
def test_a_picture_needs_no_colour(tmp_path, data):
    pixels = images.imread(draw(tmp_path / "c.png", data))[..., :3]
    assert pixels.max() == 1 and pixels.min() < 0.1
    assert (abs(pixels - pixels[..., :1]) < 0.02).all()


def test_a_matrix_shows_every_label_and_count(tmp_path):
    text = text_of((["a"] * 12 + ["b"], ["a"] * 13, ["a", "b", "idle"]), tmp_path)
    for shown in ("12", "1", "idle", "predicted label", "correct label", "accuracy 92.31"):
        assert f"<!-- {shown}" in text, shown


def test_of_many_classes_the_mistakes_are_shown(tmp_path):
    text = text_of(many(), tmp_path)
    assert "class 3 \N{RIGHTWARDS ARROW} class 7" in text
    assert "the 1 most frequent of 1 kinds of mistake: 5 of 5 mistakes" in text
    assert "class 9" not in text


def test_a_single_mistake_is_shown_only_where_there_are_no_others(tmp_path):
    gold, given, labels = many()
    with_single = [*gold, labels[9]], [*given, labels[1]], labels
    assert "class 9" not in text_of(with_single, tmp_path)
    alone = [labels[9]], [labels[1]], labels
    assert "class 9 \N{RIGHTWARDS ARROW} class 1" in text_of(alone, tmp_path)


def test_without_a_mistake_there_is_a_picture_all_the_same(tmp_path):
    assert "0 of 0 mistakes" in text_of(many(0), tmp_path)
