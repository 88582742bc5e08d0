"""A SavedModel in a session, as in TF Serving: what it refuses, and how."""

import shutil
import threading
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
from helpers import snippets

from tf_transformer.base.errors import UserError
from tf_transformer.export.saved_model import ClosedError, SavedModelSession
from tf_transformer.export.warm_up import WARM_UP

TEXT = np.array(["The dog."], object)


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


# --- gRPC --------------------------------------------------------------------------------


def test_the_guide_translates_over_grpc(exported, session, translator, capsys):
    """A service with TF Serving's protos replays the warm-up file, then answers the guide."""
    grpc = pytest.importorskip("grpc")
    apis = pytest.importorskip("tensorflow_serving.apis.prediction_service_pb2_grpc")
    from tensorflow_serving.apis import predict_pb2, prediction_log_pb2

    class Service(apis.PredictionServiceServicer):
        def Predict(self, request, context):  # noqa: N802, the name in the proto
            signature = request.model_spec.signature_name or "serving_default"
            inputs = {name: tf.make_ndarray(proto) for name, proto in request.inputs.items()}
            response = predict_pb2.PredictResponse()
            outputs = session.run(signature, inputs, list(request.output_filter))
            for name, values in outputs.items():
                proto = tf.make_tensor_proto(values, shape=values.shape)
                response.outputs[name].CopyFrom(proto)
            return response

    warm = set()
    for record in tf.data.TFRecordDataset(str(exported / WARM_UP)):
        log = prediction_log_pb2.PredictionLog.FromString(record.numpy())
        asked = log.predict_log.request
        if not asked.output_filter:  # a set of outputs takes a second to prepare
            assert Service().Predict(asked, None).outputs
            warm.add(asked.model_spec.signature_name)
    assert warm == set(session.signatures)
    (snippet,) = snippets("docs/guides/serving.md")
    server = grpc.server(futures.ThreadPoolExecutor(8))
    apis.add_PredictionServiceServicer_to_server(Service(), server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        exec(snippet.replace("8500", str(port)).replace('"mine"', '"small"'), {})
    finally:
        server.stop(0)
    expected = translator.translate(["The dog.", "A cat."])
    assert capsys.readouterr().out == f"{expected}\n"
