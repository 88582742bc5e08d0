"""Labelled text is read, and errors in it are reported with file and line."""

import gzip
from pathlib import Path

import pytest

from tf_transformer.errors import UserError
from tf_transformer.tasks.classification.labelled import Example, labels_of, read_examples


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
        ("", "no TAB: ''"),
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


def test_text_in_latin_1_is_refused_with_its_line(tmp_path):
    (tmp_path / "f.tsv").write_bytes(b"pos\tGood.\nneg\tB\xf6se.\n")
    with pytest.raises(UserError, match=r"f.tsv:2: text must be UTF-8.*iconv"):
        list(read_examples(tmp_path / "f.tsv"))


def test_an_empty_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="is empty. Expected lines of a label"):
        list(read_examples(write(tmp_path / "f.tsv", "")))


def test_a_message_lists_only_some_of_many_labels(tmp_path):
    file = write(tmp_path / "f.tsv", "x\tA film.\n")
    with pytest.raises(UserError, match="They have: a, b, c, d, e and 2 more"):
        list(read_examples(file, list("abcdefg")))


def test_labels_of_all_files_are_in_a_fixed_order(tmp_path):
    one = write(tmp_path / "one", "b\tx\nZ\tx\nb\ty\n")
    two = write(tmp_path / "two", "é\tx\na\tx\n")
    assert labels_of([one, two]) == labels_of([two, one]) == ["Z", "a", "b", "é"]


def test_a_single_label_is_refused(tmp_path):
    file = write(tmp_path / "f.tsv", "pos\tGood.\npos\tFine.\n")
    with pytest.raises(UserError, match=r"f.tsv: expected at least two labels.*has 'pos'"):
        labels_of([file])
