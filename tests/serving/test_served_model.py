"""Version folders come and go: which one answers, and what becomes of the others."""

import os
import re
import shutil
import threading
from pathlib import Path

import pytest
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tf_transformer.base.errors import UserError
from tf_transformer.export.card import CARD
from tf_transformer.serving.queue import Telemetry
from tf_transformer.serving.served_model import (
    LoadedVersion,
    NotReadyError,
    ServedModel,
    UnknownVersionError,
)


class Version:
    """Stands in for a loaded version and for its queue."""

    alive, users, waiting = True, 0, 3

    def __init__(self, number: int) -> None:
        self.number, self.queue = number, self

    def close(self) -> None:
        self.alive = False


@pytest.fixture
def folders(tmp_path):
    """`folders(1, 2)` leaves only these version folders on disk."""

    def leave(*numbers: int) -> None:
        for folder in tmp_path.iterdir():
            if int(folder.name) not in numbers:
                (folder / "saved_model.pb").unlink()
                folder.rmdir()
        for number in numbers:
            if not (tmp_path / str(number)).exists():
                (tmp_path / str(number)).mkdir()
                (tmp_path / str(number) / "saved_model.pb").touch()

    return leave


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def model(tmp_path, telemetry, caplog):
    """The model in the folder; a version whose file has content cannot be loaded."""

    def load(number: int, path: Path) -> Version:
        if reason := (path / "saved_model.pb").read_text():
            raise UserError(reason)
        return Version(number)

    caplog.set_level("INFO")
    folders = lambda: {int(path.name): path for path in tmp_path.iterdir()}  # noqa: E731
    return ServedModel("small", folders, load, telemetry, "http://here/")


@pytest.fixture
def show(model, folders):
    """`show(1, 2)`: only these version folders are there, and the model looks."""

    def show(*numbers: int) -> None:
        folders(*numbers)
        model.update()

    return show


def current(model: ServedModel) -> int:
    with model.use() as version:
        assert version.alive
        return version.number


def logged(caplog) -> list[str]:
    messages = [record.message for record in caplog.records]
    caplog.clear()
    return messages


def gauges(telemetry: Telemetry) -> dict[str, float]:
    lines = [line.split() for line in telemetry.page().decode().splitlines()]
    names = ("version", "refused_versions", "waiting_rows")
    found = {words[0].removeprefix("tf_transformer_"): words[-1] for words in lines}
    return {name: float(found[name]) for name in names}


def test_nothing_is_ready_before_the_first_version(model, show, telemetry, caplog):
    assert not model.ready and model.alive
    assert gauges(telemetry) == {"version": 0, "refused_versions": 0, "waiting_rows": 0}
    with pytest.raises(NotReadyError), model.use():
        pass
    show(3)
    assert model.ready and model.states() == {3: ("AVAILABLE", "")}
    assert logged(caplog) == ["serving small version 3 on http://here/ (Ctrl-C ends it)"]
    assert gauges(telemetry) == {"version": 3, "refused_versions": 0, "waiting_rows": 3}


def test_a_new_version_replaces_the_old_one(model, show):
    show(1)
    with model.use(1) as old:
        pass
    show(1, 2)
    assert current(model) == 2 and not old.alive
    assert model.states() == {2: ("AVAILABLE", "")}
    with pytest.raises(UnknownVersionError, match=r"no version 1 of small. Loaded: 2\."):
        model.use(1).__enter__()


def test_deleting_the_newest_version_rolls_back_but_the_last_one_stays(model, show):
    for numbers in ((1,), (1, 2), (1,), ()):
        show(*numbers)
        assert current(model) == max(numbers, default=1)


def test_other_files_under_the_same_number_replace_the_version(model, show, tmp_path, caplog):
    show(1)
    with model.use() as before:
        pass
    logged(caplog)
    model.update()
    assert logged(caplog) == []
    os.utime(tmp_path / "1" / "saved_model.pb", (1, 1))
    model.update()
    assert len(logged(caplog)) == 2
    assert current(model) == 1 and not before.alive


def test_damaged_files_under_the_same_number_change_nothing(model, show, tmp_path):
    show(1, 2)
    (tmp_path / "2" / "saved_model.pb").write_text("half of it is missing")
    model.update()
    model.update()
    assert current(model) == 2
    assert model.states() == {2: ("AVAILABLE", "half of it is missing")}


def test_a_version_that_fails_is_skipped_until_its_files_change(
    model, folders, show, tmp_path, telemetry, caplog
):
    show(1)
    folders(1, 2)
    logged(caplog)
    (tmp_path / "2" / "saved_model.pb").write_text("half of it is missing")
    model.update()
    model.update()
    assert logged(caplog) == ["version 2 of small is not used: half of it is missing"]
    assert current(model) == 1
    assert gauges(telemetry)["refused_versions"] == 1
    assert model.states()[2] == ("END", "half of it is missing")
    (tmp_path / "2" / "saved_model.pb").write_text("")
    model.update()
    assert current(model) == 2
    assert gauges(telemetry)["refused_versions"] == 0


def test_a_start_skips_versions_that_cannot_be_loaded(model, folders, show, tmp_path, caplog):
    folders(1, 2, 3, 4)
    for number in (3, 4):
        (tmp_path / str(number) / "saved_model.pb").write_text("broken")
    model.update()
    *refused, served = logged(caplog)
    assert refused == [f"version {n} of small is not used: broken" for n in (4, 3)]
    assert served.startswith("serving small version 2") and current(model) == 2
    assert model.states()[4] == ("END", "broken")
    show(1, 2, 3)
    assert set(model.states()) == {2, 3}


def test_one_version_must_load_at_the_start(model, folders, tmp_path):
    folders(1, 2)
    for number in (1, 2):
        (tmp_path / str(number) / "saved_model.pb").write_text(f"nothing in {number}")
    model.follow().join(10)
    assert not model.alive and str(model.failure) == "nothing in 1"


def test_show_that_briefly_cannot_be_listed_change_nothing(model, show, tmp_path):
    show(1)
    away = tmp_path.with_name("away")
    tmp_path.rename(away)
    model.update()
    away.rename(tmp_path)
    assert current(model) == 1
    show(1, 2)
    assert current(model) == 2


def test_an_error_at_the_start_ends_the_server(telemetry):
    def fails() -> dict[int, Path]:
        raise PermissionError("not for you")

    model = ServedModel("small", fails, None, telemetry)
    model.follow().join(10)
    assert not model.alive and isinstance(model.failure, PermissionError)


def test_a_version_in_use_is_freed_afterwards(model, folders, show):
    show(1)
    with model.use() as old:
        folders(2)
        updating = threading.Thread(target=model.update)
        updating.start()
        updating.join(0.3)
        assert updating.is_alive() and old.alive
        assert current(model) == 2
    updating.join(10)
    assert not old.alive


def test_the_whole_reason_of_a_refusal_is_told(exported, tmp_path, telemetry):
    """The model loads, but its computations fail."""
    path = shutil.copytree(exported, tmp_path / "1")
    saved = SavedModel.FromString((path / "saved_model.pb").read_bytes())
    for function in saved.meta_graphs[0].graph_def.library.function:
        for node in function.node_def:
            if node.op == "MatMul":
                node.attr["transpose_b"].b = not node.attr["transpose_b"].b
    (path / "saved_model.pb").write_bytes(saved.SerializeToString())
    with pytest.raises(UserError, match="1 can be loaded but not used: ") as refusal:
        LoadedVersion(1, path, telemetry)
    assert re.search(r"Matrix size-incompatible: In\[0\]: \[\d+,\d+\]", str(refusal.value))


def test_a_model_without_text_is_refused(text_free, telemetry):
    message = "takes text and gives `translation`. Received: one with the signatures tokens,"
    with pytest.raises(UserError, match=message):
        LoadedVersion(1, text_free, telemetry)


@pytest.mark.parametrize(
    "card",
    ['{"longest_source": "x"}', '{"sizes": []}', '{"task": 3}', '{"config": 1}', "[]", "{"],
)
def test_a_version_with_a_damaged_card_is_refused(exported, telemetry, tmp_path, card):
    """Otherwise it would fail at requests."""
    path = shutil.copytree(exported, tmp_path / "1")
    (path / CARD).write_text(card)
    with pytest.raises(UserError, match=r"card.json must be as `export` wrote it. Received: "):
        LoadedVersion(1, path, telemetry)
