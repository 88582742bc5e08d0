"""Version folders come and go: which one answers, and what becomes of the others."""

import os
import threading
from pathlib import Path

import pytest

from tf_transformer.errors import UserError
from tf_transformer.serving.loaded import (
    LoadedVersion,
    LoadedVersions,
    NotReadyError,
    UnknownVersionError,
)


class Part:
    """Stands in for both the session and the lanes of a version."""

    alive = True

    def refuse(self) -> None:
        pass

    def close(self, *_) -> None:
        self.alive = False

    def waiting(self) -> dict[str, int]:
        return {"short": 1, "long": 0}


@pytest.fixture
def folders(tmp_path):
    """`folders(1, 2)` leaves only these version folders on disk."""

    def leave(*numbers: int) -> None:
        for folder in tmp_path.iterdir():
            if int(folder.name) not in numbers:
                (folder / "saved_model.pb").unlink()
                folder.rmdir()
        for number in numbers:
            (tmp_path / str(number)).mkdir(exist_ok=True)
            (tmp_path / str(number) / "saved_model.pb").touch()

    return leave


@pytest.fixture
def loaded(tmp_path):
    """The versions of the folder; one whose file has content cannot be loaded."""

    def load(number: int, path: Path) -> LoadedVersion:
        if reason := (path / "saved_model.pb").read_text():
            raise UserError(reason)
        part = Part()
        return LoadedVersion(number, part, part)

    return LoadedVersions(
        lambda: {int(path.name): path for path in tmp_path.iterdir()}, load, "small"
    )


def newest(loaded: LoadedVersions) -> int:
    with loaded.use() as version:
        assert version.lanes.alive
        return version.number


def test_nothing_is_ready_before_the_first_version(loaded, folders):
    assert not loaded.ready and loaded.alive
    with pytest.raises(NotReadyError), loaded.use():
        pass
    folders(3)
    announced = []
    loaded.update(announced.append)
    assert loaded.ready and announced == [3] and loaded.states() == {3: ("AVAILABLE", "")}


def test_the_newest_version_answers_and_the_previous_one_stays(loaded, folders):
    for numbers in ((1,), (1, 2), (1, 2, 3)):
        folders(*numbers)
        loaded.update()
        assert newest(loaded) == numbers[-1]
    assert loaded.numbers() == [2, 3]
    with loaded.use(2) as version:
        assert version.number == 2
    with pytest.raises(UnknownVersionError, match=r"no version 1 of small. Loaded: 2, 3\."):
        loaded.use(1).__enter__()
    assert loaded.waiting() == {"short": 2, "long": 0}


def test_deleting_the_newest_version_rolls_back_but_the_last_one_stays(loaded, folders):
    for numbers in ((1,), (1, 2), (1,), ()):
        folders(*numbers)
        loaded.update()
        assert newest(loaded) == max(numbers, default=1)
    assert loaded.numbers() == [1]


def test_other_files_under_the_same_number_replace_the_version(loaded, folders, tmp_path):
    folders(1)
    announced = []
    loaded.update(announced.append)
    with loaded.use() as before:
        pass
    loaded.update(announced.append)
    assert announced == [1]
    os.utime(tmp_path / "1" / "saved_model.pb", (1, 1))
    loaded.update(announced.append)
    assert announced == [1, 1] and loaded.numbers() == [1]
    assert newest(loaded) == 1 and not before.lanes.alive


def test_a_version_that_fails_is_skipped_until_its_files_change(
    loaded, folders, tmp_path, caplog
):
    folders(1)
    loaded.update()
    folders(1, 2)
    (tmp_path / "2" / "saved_model.pb").write_text("half of it is missing")
    loaded.update()
    loaded.update()
    assert [record.message for record in caplog.records] == [
        "version 2 of small is not used: half of it is missing"
    ]
    assert newest(loaded) == 1
    assert loaded.states()[2] == ("END", "half of it is missing")
    (tmp_path / "2" / "saved_model.pb").write_text("")
    loaded.update()
    assert newest(loaded) == 2


def test_a_start_skips_versions_that_cannot_be_loaded(loaded, folders, tmp_path, caplog):
    folders(1, 2, 3, 4)
    for number in (3, 4):
        (tmp_path / str(number) / "saved_model.pb").write_text("broken")
    announced = []
    loaded.update(announced.append)
    assert announced == [2] == loaded.numbers()
    assert [record.message for record in caplog.records] == [
        f"version {number} of small is not used: broken" for number in (4, 3)
    ]
    assert loaded.states()[4] == ("END", "broken")


def test_one_version_must_load_at_the_start(loaded, folders, tmp_path):
    folders(1, 2)
    for number in (1, 2):
        (tmp_path / str(number) / "saved_model.pb").write_text(f"nothing in {number}")
    loaded.follow(print).join(10)
    assert not loaded.alive and str(loaded.failure) == "nothing in 1"


def test_folders_that_briefly_cannot_be_listed_change_nothing(loaded, folders, tmp_path):
    folders(1)
    loaded.update()
    away = tmp_path.with_name("away")
    tmp_path.rename(away)
    loaded.update()
    away.rename(tmp_path)
    assert newest(loaded) == 1
    folders(1, 2)
    loaded.update()
    assert newest(loaded) == 2


def test_an_error_at_the_start_ends_the_server():
    def fails() -> dict[int, Path]:
        raise PermissionError("not for you")

    loaded = LoadedVersions(fails, None)
    loaded.follow(print).join(10)
    assert not loaded.alive and isinstance(loaded.failure, PermissionError)


def test_a_version_in_use_is_freed_afterwards(loaded, folders):
    folders(1)
    loaded.update()
    with loaded.use() as old:
        folders(2)
        updating = threading.Thread(target=loaded.update)
        updating.start()
        updating.join(0.3)
        assert updating.is_alive() and old.lanes.alive
        assert newest(loaded) == 2
    updating.join(10)
    assert not old.lanes.alive
