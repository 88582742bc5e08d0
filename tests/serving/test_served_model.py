"""A version is loaded while the server listens, and refused if it does not work."""

import re
import shutil
from types import SimpleNamespace

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


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


def gauges(telemetry: Telemetry) -> dict[str, float]:
    lines = [line.split() for line in telemetry.page().decode().splitlines()]
    found = {words[0].removeprefix("tf_transformer_"): words[-1] for words in lines}
    names = ("version", "waiting_rows")
    return {name: float(found[f'{name}{{model="small"}}']) for name in names}


def test_a_model_is_ready_once_its_version_is_loaded(telemetry, caplog):
    caplog.set_level("INFO")
    version = SimpleNamespace(queue=SimpleNamespace(alive=True, waiting=3))
    model = ServedModel("small", 4, lambda: version, telemetry, "http://here/")
    assert not model.ready and model.alive and model.state == "LOADING"
    assert gauges(telemetry) == {"version": 0, "waiting_rows": 0}
    with pytest.raises(NotReadyError):
        model.version()
    model.start().join(10)
    assert model.ready and model.version() is model.version(4) is version
    assert model.state == "AVAILABLE"
    assert caplog.messages == ["serving small version 4 on http://here/ (Ctrl-C ends it)"]
    assert gauges(telemetry) == {"version": 4, "waiting_rows": 3}
    with pytest.raises(UnknownVersionError, match=r"no version 1 of small. There is: 4\."):
        model.version(1)
    version.queue.alive = False
    assert not model.ready and not model.alive


def test_a_version_that_cannot_be_loaded_ends_the_server(telemetry):
    def fails() -> LoadedVersion:
        raise PermissionError("not for you")

    model = ServedModel("small", 1, fails, telemetry)
    model.start().join(10)
    assert not model.alive and isinstance(model.failure, PermissionError)


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
        LoadedVersion(path, telemetry)
    assert re.search(r"Matrix size-incompatible: In\[0\]: \[\d+,\d+\]", str(refusal.value))


def test_a_model_without_text_is_refused(text_free, telemetry):
    message = "takes text and gives `translation`. Received: one with the signatures tokens,"
    with pytest.raises(UserError, match=message):
        LoadedVersion(text_free, telemetry)


@pytest.mark.parametrize(
    "card",
    ['{"longest_source": "x"}', '{"sizes": []}', '{"task": 3}', '{"config": 1}', "[]", "{"],
)
def test_a_version_with_a_damaged_card_is_refused(exported, telemetry, tmp_path, card):
    """Otherwise it would fail at requests."""
    path = shutil.copytree(exported, tmp_path / "1")
    (path / CARD).write_text(card)
    with pytest.raises(UserError, match=r"card.json must be as `export` wrote it. Received: "):
        LoadedVersion(path, telemetry)
