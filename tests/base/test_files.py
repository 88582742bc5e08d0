"""Files appear whole or not at all."""

import errno
import fcntl
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from helpers import ROOT

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import locked, new_folder, replacing, write_text
from tf_transformer.run.run import holds_other_files


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_new_file_has_the_exact_text_and_no_leftovers_beside_it(tmp_path):
    write_text(tmp_path / "new" / "a.txt", "größer\r\ntwo\n")
    assert (tmp_path / "new" / "a.txt").read_bytes() == "größer\r\ntwo\n".encode()
    assert names(tmp_path / "new") == ["a.txt"]


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


WRITER = """
import os, sys, signal
from pathlib import Path
from tf_transformer.base.files import replacing
with replacing(Path(sys.argv[1])) as temporary:
    temporary.write_text("half of the n")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_writer_leaves_the_old_content(tmp_path):
    path = tmp_path / "a.txt"
    write_text(path, "old")
    writer = subprocess.run([sys.executable, "-c", WRITER, path], cwd=ROOT, check=False)
    assert writer.returncode == -signal.SIGKILL
    assert path.read_text() == "old"
    write_text(path, "new")
    assert path.read_text() == "new"


HOLDER = """
import sys
from pathlib import Path
from tf_transformer.base.files import locked
with locked(Path(sys.argv[1])):
    print("held", flush=True)
    sys.stdin.read()
"""


def holder(folder: Path, code: str = HOLDER) -> subprocess.Popen:
    """Starts a process that locks `folder` until its input ends."""
    command = [sys.executable, "-c", code, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    process = subprocess.Popen(command, cwd=ROOT, **pipes)
    assert process.stdout.readline() == b"held\n"
    return process


def assert_in_use(folder: Path) -> None:
    with pytest.raises(UserError, match=f"{folder.name} is in use by another"), locked(folder):
        pass


@pytest.mark.parametrize("end", ["exit", "kill -9"])
def test_a_folder_is_locked_as_long_as_the_process_lives(tmp_path, end):
    with holder(tmp_path / "new") as process:
        assert_in_use(tmp_path / "new")
        if end == "kill -9":
            process.kill()
        else:
            process.stdin.close()
        process.wait(timeout=30)
    for _ in range(2):
        with locked(tmp_path / "new"):
            assert names(tmp_path / "new") == [".lock"]
    assert not holds_other_files(tmp_path / "new")


def test_another_users_lock_file_is_locked_all_the_same(monkeypatch, tmp_path):
    def open_for_reading(path, mode="r", opened=Path.open):
        if mode == "w":  # root may write every file, so permissions would prove nothing
            raise PermissionError(errno.EACCES, "Permission denied")
        return opened(path, mode)

    monkeypatch.setattr(Path, "open", open_for_reading)
    with pytest.raises(UserError, match="Permission denied"), locked(tmp_path):
        pass
    (tmp_path / ".lock").touch()
    with locked(tmp_path):
        assert_in_use(tmp_path)


def test_a_file_system_without_locks_causes_a_warning(monkeypatch, tmp_path, caplog):
    def no_locks(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", no_locks)
    with locked(tmp_path):
        assert "nothing prevents two processes from" in caplog.text


@pytest.mark.parametrize("error", [ValueError, BlockingIOError])
def test_an_error_in_the_block_passes_and_releases_the_lock(tmp_path, error):
    with pytest.raises(error, match="mine"), locked(tmp_path):
        raise error("mine")
    with locked(tmp_path):
        pass


def test_a_file_in_place_of_the_folder_is_a_user_error(tmp_path):
    write_text(tmp_path / "file", "")
    for path in (tmp_path / "file", tmp_path / "file" / "run"):
        with pytest.raises(UserError, match="file"), locked(path):
            pass


# --- Folders -----------------------------------------------------------------------------


def test_a_folder_appears_at_the_end_and_never_replaces_another(tmp_path):
    path = tmp_path / "models" / "1"
    with new_folder(path) as temporary:
        write_text(temporary / "deep" / "a.txt", "mine")
        assert temporary.parent == path.parent
        assert not path.exists()
    with pytest.raises(UserError, match="1 exists already"), new_folder(path):
        pytest.fail("it is refused at once")
    path = tmp_path / "models" / "2"
    with (
        pytest.raises(UserError, match="Cannot write .*2: .*not empty"),
        new_folder(path) as temporary,
    ):
        write_text(path / "a.txt", "of another meanwhile")
    assert names(path) == ["a.txt"]
    with new_folder(path, replaces=True) as temporary:
        write_text(temporary / "new.txt", "mine")
        assert names(path) == ["a.txt"]
    assert names(path) == ["new.txt"]
    assert names(path.parent) == ["1", "2"] and names(path.parent / "1") == ["deep"]


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_an_exception_leaves_no_folder(tmp_path, error):
    expected = UserError if error is OSError else error
    with pytest.raises(expected), new_folder(tmp_path / "1") as temporary:
        write_text(temporary / "a.txt", "half of the n")
        raise error
    assert names(tmp_path) == []


def test_leftovers_of_a_killed_process_are_deleted(tmp_path):
    write_text(tmp_path / ".1.4242.tmp" / "a.txt", "half")
    write_text(tmp_path / ".2.4242.tmp" / "a.txt", "of another folder")
    with new_folder(tmp_path / "1") as temporary:
        write_text(temporary / "b.txt", "whole")
    assert names(tmp_path) == [".2.4242.tmp", "1"]
    assert names(tmp_path / "1") == ["b.txt"]


FOLDER_WRITER = """
import sys
from pathlib import Path
from tf_transformer.base.files import new_folder
with new_folder(Path(sys.argv[1])) as temporary:
    (temporary / "a.txt").write_text("theirs")
    print("held", flush=True)
    sys.stdin.read()
"""


def test_of_two_processes_the_first_to_end_writes_the_folder(tmp_path):
    with holder(tmp_path / "1", FOLDER_WRITER) as process:
        with new_folder(tmp_path / "1") as temporary:
            write_text(temporary / "a.txt", "ours")
        process.communicate()
    assert process.returncode == 1
    assert (tmp_path / "1" / "a.txt").read_text() == "ours"
    assert names(tmp_path) == ["1"]
