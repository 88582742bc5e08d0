"""Files appear whole or not at all."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tf_transformer.errors import UserError
from tf_transformer.files import replacing, write_text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_has_the_text_and_nothing_is_beside_it(tmp_path):
    write_text(tmp_path / "new" / "a.txt", "größer\n")
    assert (tmp_path / "new" / "a.txt").read_bytes() == "größer\n".encode()
    assert names(tmp_path / "new") == ["a.txt"]


def test_line_ends_are_kept(tmp_path):
    write_text(tmp_path / "a.txt", "one\r\ntwo\n")
    assert (tmp_path / "a.txt").read_bytes() == b"one\r\ntwo\n"


def test_the_old_content_is_there_until_the_block_ends(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with replacing(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
        assert temporary.parent == path.parent  # a rename cannot cross file systems
    assert path.read_text() == "new"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_exception_in_the_block_leaves_everything_as_it_was(tmp_path, error):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with pytest.raises(error), replacing(path) as temporary:
        temporary.write_text("half of the n")
        raise error
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_full_disk_leaves_everything_as_it_was(tmp_path, largest_file):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    with (
        pytest.raises(UserError, match="Cannot write .*a.txt: File too large"),
        largest_file(99),
    ):
        write_text(path, "x" * 100_000)
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EACCES, errno.EROFS])
def test_a_failing_rename_leaves_everything_as_it_was(tmp_path, monkeypatch, code):
    def fail(*_):
        raise OSError(code, os.strerror(code))

    path = tmp_path / "a.txt"
    write_text(path, "old")
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(UserError, match=os.strerror(code)):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["a.txt"]


def test_a_file_where_a_folder_should_be_is_a_user_error(tmp_path):
    write_text(tmp_path / "file", "")
    with pytest.raises(UserError, match="Cannot write .*file/a.txt"):
        write_text(tmp_path / "file" / "a.txt", "text")


def test_a_block_that_writes_nothing_is_a_user_error(tmp_path):
    with pytest.raises(UserError, match="No such file"), replacing(tmp_path / "a.txt"):
        pass
    assert names(tmp_path) == []


WRITER = """
import os, sys, signal
from pathlib import Path
from tf_transformer.files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half of the n")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_the_old_content(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    root = Path(__file__).parents[1]
    writer = subprocess.run([sys.executable, "-c", WRITER, path], cwd=root, check=False)
    assert writer.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new"
