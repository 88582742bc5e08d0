"""Which folders count as versions, and numbers that belong to one export at a time."""

import os
import signal
import subprocess
import sys

import pytest
from command_line import ROOT, environment

from tf_transformer.errors import UserError
from tf_transformer.export.versions import reserved, versions


def test_only_numbers_are_versions(tmp_path):
    for name in ("1", "20", "007", "a", "1a", "-3", "1.5", "²", "٣", ".5.77.tmp", "assets"):
        (tmp_path / name).mkdir()
    expected = {1: "1", 20: "20", 7: "007"}
    assert {number: path.name for number, path in versions(tmp_path).items()} == expected


@pytest.mark.parametrize("name", ["absent", "file"])
def test_a_path_that_is_not_a_folder_has_no_versions(tmp_path, name):
    (tmp_path / "file").write_text("")
    assert versions(tmp_path / name) == {}


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_concurrent_exports_get_different_numbers(tmp_path):
    (tmp_path / "3").mkdir()
    with reserved(tmp_path) as first, reserved(tmp_path) as second:
        assert (first.name, second.name) == ("4", "5")
        second.mkdir()
        with reserved(tmp_path) as third:
            assert third.name == "6"
        first.mkdir()
    assert names(tmp_path) == ["3", "4", "5"]


def test_an_unused_number_becomes_free_again(tmp_path):
    for _ in range(2):
        with reserved(tmp_path / "new") as final:
            assert final == tmp_path / "new" / "1"
    assert names(tmp_path / "new") == []


@pytest.mark.parametrize("published", [True, False])
def test_a_number_that_is_taken_is_refused_at_once(tmp_path, published):
    with reserved(tmp_path, 7) as final:
        if published:
            final.mkdir()
        reason = "exists already" if published else "is being written by another export"
        with pytest.raises(UserError, match=f"7 {reason}"), reserved(tmp_path, 7):
            pass
    assert names(tmp_path) == (["7"] if published else [])


def test_a_killed_export_releases_its_number(tmp_path):
    script = (
        "import sys, time; from pathlib import Path\n"
        "from tf_transformer.export.versions import reserved\n"
        "with reserved(Path(sys.argv[1])) as final:\n"
        "    print(final.name, flush=True); time.sleep(60)"
    )
    command = [sys.executable, "-c", script, str(tmp_path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, cwd=ROOT, env=environment()
    ) as process:
        assert process.stdout.readline() == b"1\n"
        with reserved(tmp_path) as final:
            assert final.name == "2"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
    with reserved(tmp_path) as final:
        assert final.name == "1"
    assert names(tmp_path) == []


def test_numbers_below_one_are_refused(tmp_path):
    expected = "--version must be at least 1. Received: 0"
    with pytest.raises(UserError, match=expected), reserved(tmp_path, 0):
        pass
