"""Version folders: their numbers, and exports at the same time."""

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.export.versions import new_version, version_folders


def test_only_numbers_are_versions(tmp_path):
    for name in ("1", "20", "007", "a", "1a", "-3", "1.5", "²", "٣", ".5.77.tmp", "assets"):
        (tmp_path / name).mkdir()
    expected = {1: "1", 20: "20", 7: "007"}
    assert {number: path.name for number, path in version_folders(tmp_path).items()} == expected
    assert version_folders(tmp_path / "absent") == {}


def names(folder) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_the_next_number_is_free_and_appears_only_at_the_end(tmp_path):
    (tmp_path / "3").mkdir()
    for number, version in (("4", None), ("7", 7)):
        with new_version(tmp_path, version) as (final, folder):
            (folder / "file").touch()
            assert final == tmp_path / number and not final.exists()
        assert names(final) == ["file"]
    assert names(tmp_path) == ["3", "4", "7"]


def test_concurrent_exports_get_different_numbers(tmp_path):
    (tmp_path / "3").mkdir()
    (tmp_path / ".9.1.tmp").mkdir()  # of an export that was killed
    with new_version(tmp_path) as (first, _), new_version(tmp_path) as (second, _):
        assert (first.name, second.name) == ("4", "5")
        with pytest.raises(UserError, match="5 is being written"), new_version(tmp_path, 5):
            pass
    assert names(tmp_path) == [".9.1.tmp", "3", "4", "5"]


def test_exports_that_start_at_the_same_moment_get_different_numbers(tmp_path):
    started, chosen = threading.Barrier(8), threading.Barrier(8)

    def export(_) -> str:
        started.wait(timeout=20)
        with new_version(tmp_path) as (final, _):
            chosen.wait(timeout=20)
        return final.name

    with ThreadPoolExecutor(8) as threads:
        assert sorted(threads.map(export, range(8))) == list("12345678")


@pytest.mark.parametrize(
    ("version", "message"),
    [(0, "must be at least 1. Received: 0"), (3, "3 exists already. Choose another `version`")],
)
def test_a_version_that_cannot_be_written_is_refused_at_once(tmp_path, version, message):
    (tmp_path / "3").mkdir()
    with pytest.raises(UserError, match=message), new_version(tmp_path, version):
        pass
    assert names(tmp_path) == ["3"]
