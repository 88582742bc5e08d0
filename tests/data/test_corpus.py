"""Reading plain parallel text."""

import gzip
import os
from pathlib import Path

import pytest

from tf_transformer.data.text import (
    arriving_lines,
    read_lines,
    read_pairs,
    resolve_prefix,
)
from tf_transformer.errors import UserError


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("prefix", ["train", "news.v1[clean]"])
@pytest.mark.parametrize("endings", [("en",), ("en.gz",), ("en", "en.gz")])
def test_a_prefix_finds_its_plain_file_or_else_the_gzipped_one(tmp_path, prefix, endings):
    expected, *_ = [write(tmp_path / f"{prefix}.{ending}", b"a\n") for ending in endings]
    assert resolve_prefix(tmp_path / prefix, "en") == expected
    assert resolve_prefix(f"{tmp_path}/{prefix}", "en") == expected


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("train", "Languages found for {dir}/train: en, fr."),
        ("valid", "No file begins with {dir}/valid."),
        ("no/such", "No file begins with {dir}/no/such."),
        ("train.en", "{dir}/train.en is a file: give its name without the language."),
    ],
)
def test_a_missing_language_is_refused_with_the_languages_that_exist(
    tmp_path, prefix, expected
):
    write(tmp_path / "train.en", b"a\n")
    write(tmp_path / "train.fr.gz", b"a\n")
    with pytest.raises(UserError) as error:
        resolve_prefix(tmp_path / prefix, "de")
    wanted = f"{tmp_path}/{prefix}.de"
    assert str(error.value).startswith(f"There is no {wanted} and no {wanted}.gz.")
    assert str(error.value).endswith(expected.format(dir=tmp_path))


@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
@pytest.mark.parametrize(
    ("data", "lines"),
    [
        (b"", []),
        (b"a\nb\n", ["a", "b"]),
        (b"a\nb", ["a", "b"]),
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("a\u2028b\x0bc\x85d\x1ce\n".encode(), ["a\u2028b\x0bc\x85d\x1ce"]),
        (b"a\rb\n", ["a\rb"]),
        ("😀 Füße\n".encode(), ["😀 Füße"]),
    ],
)
def test_only_newline_and_crlf_end_a_line(tmp_path, name, data, lines):
    assert list(read_lines(write(tmp_path / name, data))) == lines


@pytest.mark.parametrize("name", ["text.en", "text.en.gz"])
@pytest.mark.parametrize(
    ("data", "line", "byte"),
    [(b"fine\nna\xefve\n", 2, "0xef at byte 3"), ("a".encode("utf-16"), 1, "0xff at byte 1")],
)
def test_text_that_is_not_utf8_is_refused_with_line_and_byte(tmp_path, name, data, line, byte):
    path = write(tmp_path / name, data)
    with pytest.raises(UserError, match=rf"{name}:{line}: text must be UTF-8.* byte {byte} of"):
        list(read_lines(path))


@pytest.mark.parametrize(
    "data",
    [gzip.compress(b"a line\n" * 999)[:-12], b"plain text\n", gzip.compress(b"a\n") + b"junk"],
    ids=["truncated", "plain", "trailing"],
)
def test_damaged_gzip_is_refused(tmp_path, data):
    path = tmp_path / "text.en.gz"
    path.write_bytes(data)
    with pytest.raises(UserError, match="text.en.gz is not a complete gzip file"):
        list(read_lines(path))


def test_unreadable_file_is_refused(tmp_path):
    with pytest.raises(UserError, match="missing.en cannot be read: No such file"):
        list(read_lines(tmp_path / "missing.en"))
    with pytest.raises(UserError, match="cannot be read: Is a directory"):
        list(read_lines(tmp_path))


def test_pairs_follow_the_files_line_by_line_empty_lines_included(tmp_path):
    files = write(tmp_path / "1.en", b"a\n\nc\n"), write(tmp_path / "1.de.gz", b"\ny\nz")
    assert list(read_pairs(*files)) == [("a", ""), ("", "y"), ("c", "z")]


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 1), (4, 5)])
def test_different_line_counts_are_refused_with_the_true_counts(tmp_path, left, right):
    source = write(tmp_path / "1.en", b"a\n" * left)
    target = write(tmp_path / "1.de", b"x\n" * right)
    with pytest.raises(UserError, match=rf"1.en with {left} and .*1.de with {right}\."):
        list(read_pairs(source, target))


def test_lines_arrive_whole_and_as_soon_as_they_are_written():
    reader, writer = os.pipe()
    arriving = arriving_lines(reader)
    os.write(writer, b"\xef\xbb\xbfa\nb")
    assert next(arriving) == ["a"]
    os.write(writer, b"c\r\n\nhalf \xc3")
    assert next(arriving) == ["bc", ""]
    os.write(writer, b"\xa4\nno end")
    assert next(arriving) == ["half ä"]
    os.close(writer)
    assert list(arriving) == [["no end"]]
    os.close(reader)


def test_arriving_lines_are_those_of_the_file(tmp_path):
    path = tmp_path / "a"
    path.write_text("one\n\ntwo\x85\u2028 \x0c\n" * 9_000 + "x" * 200_000, "utf-8")
    with path.open("rb") as file:
        chunks = list(arriving_lines(file.fileno()))
    assert [line for chunk in chunks for line in chunk] == list(read_lines(path))
    assert len(chunks) > 2


def test_an_arriving_line_that_is_not_utf8_is_refused_by_its_number():
    reader, writer = os.pipe()
    arriving = arriving_lines(reader)
    os.write(writer, b"a\nb\n")
    assert next(arriving) == ["a", "b"]
    os.write(writer, b"c\nd\xfc\n")
    with pytest.raises(UserError, match=r":4: text must be UTF-8. .* 0xfc at byte 2"):
        next(arriving)
    os.close(writer)
    os.close(reader)
