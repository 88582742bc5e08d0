"""The long comparison keeps its curves: what is trained is not trained again."""

import json

import peer_learning
import pytest
from peer_learning import Curve

from tf_transformer.errors import UserError

CONTENDER = """
from pathlib import Path
from harness.child import serve
def setup(batches, **options):
    place = Path(batches)
    def log(text):
        with place.open("a") as file:
            file.write(text + " ")
        return {}
    def train(first, number):
        if first == 20 and Path(batches + ".stop").exists():
            raise SystemExit
        return {"nats": float(first + number)} | log(f"train-{first}")
    def save(path):
        Path(path).touch()
        return log("save")
    def restore(path):
        return log("restore-" + str(Path(path).exists()))
    return {"train": train, "save": save, "restore": restore}
serve(setup)
"""


@pytest.fixture
def series(tmp_path, monkeypatch) -> str:
    (tmp_path / "fake.py").write_text(CONTENDER)
    monkeypatch.setitem(peer_learning.SCRIPTS, "fake", (str(tmp_path / "fake"), "own"))
    return "fake"


def test_a_curve_goes_on_from_its_last_point(series, tmp_path):
    log, stop = tmp_path / "log", tmp_path / "log.stop"
    curve = Curve(series, {"seed": 3}, {"corpus": "a"}, tmp_path, every=10)
    stop.touch()
    with pytest.raises(UserError, match="fake failed at train"):
        curve.train(str(log), 45, threads=1)
    stop.unlink()
    assert log.read_text().split() == ["train-0", "save", "train-10", "save"]
    log.unlink()
    assert curve.train(str(log), 45, threads=1) == [10, 20, 30, 40]
    assert log.read_text().split()[:2] == ["restore-True", "train-20"]
    assert [file.name for file in tmp_path.glob("*.state.npz")] == ["fake-3-40.state.npz"]
    log.unlink()
    assert curve.train(str(log), 30, threads=1) == [10, 20, 30]
    assert not log.exists()


def test_a_curve_of_other_text_is_trained_anew(series, tmp_path):
    for corpus in "ab":
        curve = Curve(series, {"seed": 3}, {"corpus": corpus}, tmp_path, every=5)
        log = tmp_path / corpus
        curve.train(str(log), 5, threads=1)
        assert "train-0" in log.read_text()
    record = json.loads((tmp_path / "fake-3.json").read_text())
    assert record["origin"]["text"] == {"corpus": "b"}
