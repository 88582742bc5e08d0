"""Labelled text is read, errors in it are reported with file and line; scores of labels."""

import gzip
import random
from pathlib import Path

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.tasks.classification.labelled import (
    ClassScore,
    Example,
    labels_of,
    read_examples,
    score_classes,
)


def write(path: Path, text: str) -> Path:
    path.write_text(text, "utf-8")
    return path


def test_a_line_is_a_label_and_a_sentence(tmp_path):
    file = write(tmp_path / "f.tsv", "pos\tA  fine\tfilm .\r\n neg \t So so. \n")
    assert list(read_examples(file)) == [
        Example("A  fine\tfilm .", "pos"),
        Example("So so.", "neg"),
    ]


def test_a_gzipped_file_is_read(tmp_path):
    (tmp_path / "f.tsv.gz").write_bytes(gzip.compress("pos\tgrün\n".encode()))
    assert list(read_examples(tmp_path / "f.tsv.gz")) == [Example("grün", "pos")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("pos A film.", "no TAB: 'pos A film.'"),
        ("", "Received: a blank line. Remove it"),
        ("pos\t \u3000", "Received: no sentence"),
        ("\tA film.", "Received: no label"),
        ("odd\tA film.", "the label 'odd'. They have: neg, pos"),
    ],
)
def test_a_bad_line_is_refused_with_its_number(tmp_path, line, expected):
    file = write(tmp_path / "f.tsv", f"pos\tGood.\n{line}\nneg\tBad.\n")
    with pytest.raises(UserError, match=expected) as error:
        list(read_examples(file, ["neg", "pos"]))
    assert str(error.value).startswith(f"{file}:2: ")


def test_a_header_is_named_among_the_classes(tmp_path, caplog):
    caplog.set_level("INFO")
    file = write(tmp_path / "f.tsv", "label\tsentence\n" + "neg\tBad.\npos\tGood.\n" * 1_000)
    assert labels_of([file], log=True) == ["label", "neg", "pos"]
    listed, warned = caplog.messages
    assert listed == "classes: label 1, neg 1,000, pos 1,000"
    assert warned.startswith("classes that occur once") and warned.endswith(
        f"'label' ({file}:1)"
    )
    caplog.clear()
    labels_of([file, file], log=True)
    assert caplog.messages == ["classes: label 2, neg 2,000, pos 2,000"]


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="is empty. Expected lines of a label"):
        list(read_examples(write(tmp_path / "f.tsv", "")))


def test_labels_of_all_files_are_in_a_fixed_order(tmp_path):
    one = write(tmp_path / "one", "b\tx\nZ\tx\nb\ty\n")
    two = write(tmp_path / "two", "é\tx\na\tx\n")
    assert labels_of([one, two]) == labels_of([two, one]) == ["Z", "a", "b", "é"]


def test_a_single_label_is_refused(tmp_path):
    file = write(tmp_path / "f.tsv", "pos\tGood.\npos\tFine.\n")
    with pytest.raises(UserError, match=r"f.tsv: expected at least two labels.*has 'pos'"):
        labels_of([file])


# --- Scores ------------------------------------------------------------------------------

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
    assert repr(score_classes(GOLD, PREDICTED, ["a", "b", "c"])) == (
        "      precision    recall     F1    sentences\n"
        "a         50.00     66.67  57.14            3\n"
        "b         50.00     50.00  50.00            2\n"
        "c          0.00      0.00   0.00            1\n"
        "accuracy 50.00 (3 of 6)  macro F1 35.71"
    )
