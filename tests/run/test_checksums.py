"""Recorded checksums: files that differ from them, and damage to the record itself."""

import json
from pathlib import Path

import pytest

from tf_transformer.data.texts import Text
from tf_transformer.errors import UserError
from tf_transformer.run.checksums import Checksums


@pytest.fixture
def checksums(tmp_path) -> Checksums:
    return Checksums(tmp_path / "checksums.json")


def test_a_file_without_a_checksum_is_accepted(checksums, tmp_path):
    (tmp_path / "a").write_text("one")
    checksums.require(tmp_path / "a")
    assert not checksums.knows(tmp_path / "a")
    assert not checksums.path.exists()


def test_a_recorded_checksum_is_required_until_it_is_dropped(checksums, tmp_path):
    file = tmp_path / "a"
    file.write_text("one")
    checksums.keep(file, tmp_path / "missing")
    checksums.require(file)
    assert checksums.knows(file)
    assert not checksums.knows(tmp_path / "missing")
    file.write_text("two")
    with pytest.raises(UserError, match="a is damaged"):
        checksums.require(file)
    with pytest.raises(UserError, match="a was gone, and its replacement differs"):
        checksums.keep(file, new=False)
    checksums.forget(file)
    checksums.require(file)


def test_files_and_texts_are_recorded_together(checksums, tmp_path):
    (tmp_path / "a").write_text("one")
    text = Text.of(tmp_path / "a")
    assert checksums.texts("train") is None
    checksums.keep_texts({"train": [text], "valid": []})
    checksums.keep(tmp_path / "a")
    assert Checksums(checksums.path).texts("train") == [text]
    assert Checksums(checksums.path).texts("valid") == []
    checksums.require(tmp_path / "a")


def test_the_record_is_read_once_until_it_is_replaced(checksums, tmp_path, monkeypatch):
    """By this process or another: a worker sees what the chief has meanwhile recorded."""
    reads = []
    read_text = Path.read_text
    monkeypatch.setattr(
        Path, "read_text", lambda path, **how: reads.append(path) or read_text(path, **how)
    )
    file = tmp_path / "a"
    file.write_text("one")
    checksums.keep(file)
    for _ in range(3):
        checksums.require(file)
        assert checksums.knows(file)
    assert len(reads) == 1
    file.write_text("two")
    Checksums(checksums.path).keep(file)
    checksums.require(file)
    assert len(reads) == 3  # once by the other object, and once more


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "5",
        "null",
        "{}",
        '{"files": 5, "texts": {}}',
        '{"files": {}, "texts": {"train": 5}}',
        '{"files": {}, "texts": {"train": [{"path": "a"}]}}',
        json.dumps("x") * 2,
        "[" * 100_000,
        "\udcff",
    ],
)
def test_a_damaged_record_is_a_user_error_in_one_line(checksums, tmp_path, content):
    checksums.path.write_bytes(content.encode(errors="surrogateescape"))
    (tmp_path / "a").write_text("one")
    with pytest.raises(UserError, match="checksums.json is damaged: .*delete it") as raised:
        checksums.require(tmp_path / "a")
    assert "\n" not in str(raised.value)
