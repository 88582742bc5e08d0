"""Text files, identified by their content."""

import gzip
from pathlib import Path

import pytest

from tf_transformer.config import DataConfig
from tf_transformer.data.text import content_hash, identity, text_files
from tf_transformer.errors import UserError


def test_compression_does_not_change_the_identity_of_a_file(tmp_path):
    (tmp_path / "plain").write_bytes(b"one\ntwo\n")
    (tmp_path / "fast.gz").write_bytes(gzip.compress(b"one\ntwo\n", 1, mtime=1))
    (tmp_path / "small.gz").write_bytes(gzip.compress(b"one\ntwo\n", 9, mtime=2))
    assert len({identity([path]) for path in tmp_path.iterdir()}) == 1


def test_the_order_of_files_is_part_of_their_identity(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(name)
    one, two = (tmp_path / name for name in "ab")
    assert identity([one, two]) != identity([two, one])
    assert identity([]) == ""


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
