"""A SavedModel in a session, as in TF Serving: what it refuses, and how."""

import shutil
import threading

import numpy as np
import pytest

from tf_transformer.errors import UserError
from tf_transformer.export.session import (
    BadRequestError,
    ClosedError,
    SavedModelSession,
)

TEXT = np.array(["The dog."], object)


@pytest.mark.parametrize(
    ("signature", "inputs", "message"),
    [
        ("nope", {"text": TEXT}, "no signature 'nope'.*serving_default"),
        ("score", {"source": TEXT}, "inputs must be source, target. Received: source"),
        ("serving_default", {"text": "scalar"}, "text must be of rank 1. Received: 0"),
        ("tokens", {"tokens": [["a"]]}, r'must be a whole number \(int32\). Received: "a"'),
    ],
)
def test_malformed_requests_are_refused(session, signature, inputs, message):
    """The tests of `rest` have more of them."""
    with pytest.raises(BadRequestError, match=message):
        session.run(signature, inputs)


def test_an_unknown_output_is_refused(session):
    with pytest.raises(BadRequestError, match="outputs must be .* Received: weights"):
        session.run("serving_default", {"text": TEXT}, ["weights"])


def test_a_call_that_takes_too_long_is_cancelled_and_the_next_one_works(session):
    long = {"text": np.array(["The dog. " * 50] * 32, object)}
    with pytest.raises(TimeoutError, match="nbest took more than 0.001 s"):
        session.run("nbest", long, timeout=0.001)
    assert len(session.run("nbest", {"text": TEXT}, timeout=60.0)["count"]) == 1


def test_only_requested_outputs_are_returned(session):
    assert set(session.run("serving_default", {"text": TEXT}, ["score"])) == {"score"}
    assert set(session.run("serving_default", {"text": TEXT})) == {
        "translation", "score", "source_cut",
    }  # fmt: skip


@pytest.mark.parametrize("damage", ["absent", "empty", "garbage", "no variables"])
def test_a_folder_without_a_usable_saved_model_is_refused(exported, tmp_path, damage):
    path = tmp_path / "1"
    if damage != "absent":
        path.mkdir()
    if damage == "garbage":
        (path / "saved_model.pb").write_bytes(b"\xff\x00garbage")
    if damage == "no variables":
        (path / "saved_model.pb").write_bytes((exported / "saved_model.pb").read_bytes())
    with pytest.raises(UserError, match="1 holds no SavedModel that can be loaded: "):
        SavedModelSession(path)


def test_a_closed_session_raises_closed_error(exported):
    with SavedModelSession(exported) as session:
        long = {"text": np.array(["The dog. " * 400] * 32, object)}
        threading.Timer(0.5, session.close).start()
        with pytest.raises(ClosedError):
            session.run("nbest", long)
        with pytest.raises(ClosedError):
            session.run("nbest", long)


@pytest.mark.parametrize("name", ["v[1]", "v\\1", "[ab]c"])
def test_a_path_that_tensorflow_reads_as_a_pattern_is_refused(exported, tmp_path, name):
    path = shutil.copytree(exported, tmp_path / name / "1")
    with pytest.raises(UserError, match=r"must not contain \[...\] or a backslash"):
        SavedModelSession(path)


def test_other_wildcards_in_a_path_are_harmless(exported, tmp_path):
    path = shutil.copytree(exported, tmp_path / "v*? [1 {a,b}" / "1")
    assert SavedModelSession(path).signatures
