"""Labelled text is read, errors in it are reported with file and line; scores of labels."""

import gzip
import random
import re
from pathlib import Path

import pytest

from experiments.classification.labelled import (
    Example,
    LabelScore,
    labels_of,
    read_examples,
    score_labels,
)
from tf_transformer import UserError


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


@pytest.mark.parametrize("line", ["pos A film.", "", "pos\t \u3000", "\tA film."])
def test_a_bad_line_is_refused_with_its_number(tmp_path, line):
    file = write(tmp_path / "f.tsv", f"pos\tGood.\n{line}\nneg\tBad.\n")
    expected = f"{file}:2: expected a label, a TAB and a sentence. Received: {line!r}"
    with pytest.raises(UserError, match=re.escape(expected)):
        list(read_examples(file))


def test_a_label_that_was_not_learned_is_refused(tmp_path):
    file = write(tmp_path / "f.tsv", "pos\tGood.\nodd\tA film.\n")
    with pytest.raises(UserError, match=":2: .* the label 'odd'. They have: neg, pos"):
        list(read_examples(file, ["neg", "pos"]))


def test_a_header_is_named_among_the_labels(capsys):
    examples = [Example("sentence", "label"), *[Example("a", "b"), Example("a", "Z")] * 2]
    assert labels_of(examples) == ["Z", "b", "label"]
    assert "once, such as a header: label\n" in capsys.readouterr().out
    labels_of(examples * 2)
    assert "once" not in capsys.readouterr().out


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="is empty. Expected lines of a label"):
        list(read_examples(write(tmp_path / "f.tsv", "")))


def test_a_single_label_is_refused():
    with pytest.raises(UserError, match="at least two labels. Received: pos"):
        labels_of([Example("Good.", "pos")] * 2)


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
    scores = score_labels(GOLD, PREDICTED, ["a", "b", "c"])
    assert scores.rows() == [
        LabelScore("a", 2 / 4, 2 / 3, pytest.approx(4 / 7), 3),
        LabelScore("b", 1 / 2, 1 / 2, 1 / 2, 2),
        LabelScore("c", 0, 0, 0, 1),
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
    assert score_labels(gold, predicted, labels).macro_f1 == pytest.approx(expected)


def test_a_class_that_does_not_occur_has_zeros_and_does_not_count():
    scores = score_labels(["a", "b"], ["a", "b"], ["a", "b", "never"])
    assert scores.macro_f1 == scores.accuracy == 1
    assert scores.rows()[2] == LabelScore("never", 0, 0, 0, 0)


def test_the_table_has_percentages():
    scores = score_labels(GOLD, PREDICTED, ["a", "b", "c"])
    assert scores.summary() == "accuracy 50.00 (3 of 6)  macro F1 35.71"
    rows = [re.findall(r"[\w.]+", line) for line in scores.table().splitlines()[2:]]
    assert rows[0] == ["a", "50.00", "66.67", "57.14", "3"]
