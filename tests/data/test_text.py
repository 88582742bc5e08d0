"""Reading plain parallel text."""

import gzip
import hashlib
import os
from pathlib import Path

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.config import DataConfig
from tf_transformer.data.text import (
    all_pairs,
    arriving_lines,
    content_hash,
    corpora,
    data_files,
    identity,
    read_lines,
    read_pairs,
    resolve_prefix,
    split_name,
    text_files,
)


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
        ("train", "There is: train.en, train.fr.gz."),
        ("no/such", "There is: nothing that begins so."),
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
        (b"a\r\n\r\nb\r\n", ["a", "", "b"]),
        (b"\xef\xbb\xbfa\n\xef\xbb\xbfb\n", ["a", "\ufeffb"]),
        ("a\u2028b\x0bc\x85d\x1ce\n".encode(), ["a\u2028b\x0bc\x85d\x1ce"]),
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


def test_line_ends_of_old_macs_are_refused_but_a_return_inside_a_line_is_text(tmp_path):
    for name in ("old.en", "old.en.gz"):
        with pytest.raises(UserError, match=f"{name}: .* Received: CR alone.* tr '"):
            list(read_lines(write(tmp_path / name, b"a\rb\r")))
    for data in (b"a\rb\nc\n", b"a\r", b"\r"):
        assert len(list(read_lines(write(tmp_path / "new.en", data)))) == data.count(b"\n") or 1


def test_a_byte_order_mark_inside_a_text_is_named(tmp_path, caplog):
    for language, text in (("en", "\ufeffa\nb\nc\n"), ("de", "\ufeffx\n\ufeffy\nz\ufeff\n")):
        (tmp_path / f"t.{language}").write_text(text, "utf-8")
    corpora([str(tmp_path / "t")], DATA)[0].check()
    (message,) = caplog.messages
    assert message.startswith(f"{tmp_path}/t.en and {tmp_path}/t.de: U+FEFF inside 2 lines, ")
    assert "the first 2: " in message


PAIRS = [("a dog", "ein Hund"), ("", "x"), ("two  cats", "zwei Katzen\u2028")]
DATA = DataConfig(source="en", target="de")


def table(path: Path, pairs=PAIRS) -> Path:
    text = "".join(f"{source}\t{target}\n" for source, target in pairs)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


def aligned(prefix: Path, languages: tuple[str, str], pairs=PAIRS) -> Path:
    for side, language in enumerate(languages):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        Path(f"{prefix}.{language}").write_text(text, "utf-8")
    return prefix


@pytest.mark.parametrize("name", ["t.tsv", "t.tsv.gz"])
def test_a_table_holds_the_pairs_of_two_files(tmp_path, name):
    names = [str(table(tmp_path / name)), str(aligned(tmp_path / "t", ("en", "de")))]
    one, other = corpora(names, DATA)
    assert list(one.pairs()) == list(other.pairs()) == PAIRS
    assert len(one) == len(other) == len(PAIRS)
    assert (one.file("source"), one.file("target")) == (tmp_path / name, tmp_path / name)
    assert other.file("target") == tmp_path / "t.de"
    assert list(all_pairs([one, other])) == [*PAIRS, *PAIRS]


@pytest.mark.parametrize(
    ("line", "received"),
    [
        ("a dog", "1 columns"),
        ("0.9\ta dog\tein Hund", "3 columns"),
        ("\n \n", "a blank last line. Remove it"),
        (" \na\tb", "a blank line. Remove it"),
    ],
)
def test_a_line_without_two_columns_is_refused_by_its_number(tmp_path, line, received):
    path = table(tmp_path / "t.tsv")
    path.write_text(path.read_text("utf-8") + f"{line}\n", "utf-8")
    (corpus,) = corpora([str(path)], DATA)
    with pytest.raises(UserError, match=rf"t.tsv:4: .* TAB .*Received: {received}"):
        corpus.check()


def test_a_name_may_end_in_its_languages(tmp_path):
    prefix = aligned(tmp_path / "t", ("fr", "en"))
    one, other = corpora([f"{prefix}:fr-en", f"{prefix}:en-fr"], DATA)
    assert (one.source, one.languages) == (tmp_path / "t.fr", ("fr", "en"))
    assert list(other.pairs()) == [(target, source) for source, target in PAIRS]
    with pytest.raises(UserError, match="There is no .*t.de"):
        corpora([str(prefix)], DATA)


@pytest.mark.parametrize(
    ("source", "target"),
    [("en", "pt-BR"), ("pt-BR", "en"), ("zh-Hans-CN", "es-419"), ("EN", "DE"), ("de_AT", "en")],
)
def test_a_language_may_have_a_script_and_a_region(source, target):
    name = f"a-b/x:{source}-{target}"
    assert split_name(name, DATA) == (Path("a-b/x"), (source, target))


def test_a_tag_precedes_every_source_that_is_not_blank(tmp_path):
    data = DataConfig(source="en", target="de", tag=("de=<2de>",))
    (tagged,) = corpora([str(table(tmp_path / "t.tsv"))], data)
    expected = [("<2de> a dog", "ein Hund"), PAIRS[1], ("<2de> two  cats", PAIRS[2][1])]
    assert list(tagged.pairs()) == expected
    assert list(tagged.plain_pairs()) == PAIRS


def test_compression_does_not_change_the_identity_of_a_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"one\ntwo\n")
    (tmp_path / "fast.gz").write_bytes(gzip.compress(b"one\ntwo\n", 1, mtime=1))
    (tmp_path / "small.gz").write_bytes(gzip.compress(b"one\ntwo\n", 9, mtime=2))
    assert len({identity([path]) for path in tmp_path.iterdir()}) == 1


@pytest.mark.parametrize("content", [None, b"\x1f\x8b\x08\x00", b"no gzip"])
def test_an_unreadable_file_is_named(tmp_path, content):
    file = tmp_path / "a.gz"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError, match=r"a\.gz (cannot be read|is not a complete gzip file)"):
        content_hash(file)


def test_files_are_found_by_prefix_and_language_or_named_directly(tmp_path):
    for name in ("x.en", "x.de.gz", "trees"):
        (tmp_path / name).touch()
    two = DataConfig(train=(str(tmp_path / "x"),), source="en", target="de")
    assert text_files(two, "train") == [tmp_path / "x.en", tmp_path / "x.de.gz"]
    one = DataConfig(valid=(str(tmp_path / "trees"),))
    assert text_files(one, "valid") == [Path(tmp_path / "trees")]
    assert text_files(one, "train") == []


def test_data_files_have_roles_line_counts_and_hashes(tmp_path):
    """Those of gzipped files are counted, and files that are missing listed."""
    write(tmp_path / "train.en", b"one\ntwo\n")
    write(tmp_path / "dev.en.gz", b"one\ntwo\nthree\n")
    names = {"train": [f"{tmp_path}/train"], "valid": [f"{tmp_path}/dev"]}
    files = data_files(DataConfig(source="en", target="de", **names))
    assert [(file.role, Path(file.path).name, file.lines()) for file in files] == [
        ("train", "train.en", 2), ("train", "train.de", None),
        ("valid", "dev.en.gz", 3), ("valid", "dev.de", None),
    ]  # fmt: skip
    assert files[0].sha256 == hashlib.sha256(b"one\ntwo\n").hexdigest()
    assert files[1].sha256 is None


def test_without_languages_the_configured_names_are_files(tmp_path):
    names = [str(write(tmp_path / "dev.en", b"one\n")), str(tmp_path / "nothing.ptb")]
    files = data_files(DataConfig(train=names))
    assert [(file.path, file.lines()) for file in files] == [(names[0], 1), (names[1], None)]
