"""A SavedModel in a session, as in TF Serving: what it refuses, and how."""

import shutil
import threading
from concurrent import futures

import numpy as np
import pytest
import tensorflow as tf
from helpers import snippets
from tensorflow.core.protobuf.saved_model_pb2 import SavedModel

from tf_transformer import load
from tf_transformer.base.errors import UserError
from tf_transformer.decoding.interface import ClosedError
from tf_transformer.export.operations import check_operations
from tf_transformer.export.publishing import WARM_UP
from tf_transformer.export.saved_model import ExportEngine

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
        ExportEngine(path)


def test_a_closed_session_raises_closed_error(exported):
    with ExportEngine(exported) as session:
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
        ExportEngine(path)


def test_other_wildcards_in_a_path_are_harmless(exported, tmp_path):
    path = shutil.copytree(exported, tmp_path / "v*? [1 {a,b}" / "1")
    assert ExportEngine(path).signatures


# --- What others have written ------------------------------------------------------------


def write_foreign(folder, function, *outputs):
    """A SavedModel of nobody's export: a function of a text and of a file beside the model."""
    module = tf.Module()
    file = f"{folder}.txt"
    module.weight = tf.Variable([1.0])  # so that there are checkpoints to write

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, name="text")])
    def answer(text):
        result = function(text, file)
        return {name: result for name in outputs or ("translation",)}

    tf.saved_model.save(module, str(folder), signatures=answer)


def in_a_loop(text, file):
    return tf.while_loop(lambda _: False, lambda one: tf.io.read_file(one), [text[0]])[0]


def written(operation):
    """A function that runs an operation without a result."""

    def answer(text, file):
        with tf.control_dependencies([operation(text, file)]):
            return tf.identity(text)

    return answer


ONE = {"prefix": "x", "tensor_names": [""], "shape_and_slices": [""]}
ACTING = {
    "ReadFile": lambda text, file: tf.io.read_file(file)[tf.newaxis],
    "ReadFile in a loop": in_a_loop,
    "MatchingFiles": lambda text, file: tf.io.matching_files(file),
    "WriteFile": written(lambda text, file: tf.io.write_file(file, "written")),
    "SaveV2": written(lambda text, file: tf.raw_ops.SaveV2(**ONE, tensors=[text])),
    "RestoreV2": lambda text, file: tf.raw_ops.RestoreV2(**ONE, dtypes=[tf.string])[0],
    "PrintV2": written(lambda text, file: tf.print(text)),
    "PyFunc": lambda text, file: tf.numpy_function(lambda one: one, [text], tf.string),
}


@pytest.mark.parametrize("name", ACTING)
def test_operations_that_may_act_on_files_are_refused_by_name(tmp_path, name):
    write_foreign(tmp_path / "1", ACTING[name])
    for path in (tmp_path, tmp_path / "1"):
        with pytest.raises(UserError, match=rf"1 is not loaded: .* {name.split()[0]}\b"):
            load(path)
    assert not (tmp_path / "1.txt").exists()


def test_the_loaders_own_function_is_refused_to_others(exported, tmp_path):
    model = SavedModel.FromString((exported / "saved_model.pb").read_bytes())
    graph = model.meta_graphs[0]
    name = graph.saver_def.restore_op_name
    (restore,) = (node for node in graph.graph_def.node if node.name == name)
    (function,) = (
        function
        for function in graph.graph_def.library.function
        if function.signature.name == restore.attr["f"].func.name
    )
    (reading,) = (node for node in function.node_def if node.op == "RestoreV2")

    def refused() -> set[str]:
        (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
        with pytest.raises(UserError, match="is not loaded") as caught:
            check_operations(tmp_path)
        return {*str(caught.value).split("files: ")[1].rstrip(".").split(", ")}

    again = graph.graph_def.node.add()
    again.CopyFrom(restore)
    again.name = "again"
    assert refused() == {"RestoreV2"}
    again.attr["f"].func.name = "ReadFile"  # no function, but an operation
    assert refused() == {"ReadFile"}
    del graph.graph_def.node[-1]
    argument, reading.input[0] = reading.input[0], "another"
    assert refused() == {"RestoreV2"}
    reading.input[0] = argument
    graph.signature_def["score"].inputs["file"].name = graph.saver_def.filename_tensor_name
    assert refused() == {"MergeV2Checkpoints", "RestoreV2", "SaveV2"}
    del graph.signature_def["score"].inputs["file"]
    (tmp_path / "saved_model.pb").write_bytes(model.SerializeToString())
    check_operations(tmp_path)


def test_another_file_than_the_one_checked_is_never_read(exported, tmp_path):
    (tmp_path / "saved_model.pbtxt").write_text("")  # which TensorFlow reads, without the other
    with pytest.raises(UserError, match="holds no SavedModel that can be loaded"):
        ExportEngine(tmp_path)


@pytest.mark.parametrize(
    ("outputs", "missing"),
    [
        (["label"], "translation, score, source_cut in `serving_default`"),
        (["translation", "score", "source_cut"], "in `with_options`"),
    ],
)
def test_a_harmless_model_of_others_is_refused_in_one_line(tmp_path, outputs, missing):
    write_foreign(tmp_path / "1", lambda text, file: text, *outputs)
    with pytest.raises(UserError, match=f"must be an export of this package .*{missing}"):
        load(tmp_path)


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
    (snippet,) = snippets("docs/guides/operating.md")
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
