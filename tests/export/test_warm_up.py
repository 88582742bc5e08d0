"""Warm-up requests, which TF Serving reads."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.export.publishing import WARM_UP, Request, prediction_log
from tf_transformer.export.signatures import requests


def asked_of(translator):
    """Returns the requests to a model without slots, which has no signature `places`."""
    return [each for each in requests(translator.codec) if each.signature != "places"]


def records(exported):
    dataset = tf.data.TFRecordDataset(str(exported / WARM_UP))
    return [record.numpy() for record in dataset]


def test_tf_serving_reads_the_same_requests(translator, exported):
    log = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    expected = asked_of(translator)
    found = [log.PredictionLog.FromString(record) for record in records(exported)]
    assert len(found) == len(expected)
    for message, request in zip(found, expected, strict=True):
        assert message.WhichOneof("log_type") == "predict_log"
        predict = message.predict_log.request
        assert predict.model_spec.name == "small"
        assert predict.model_spec.signature_name == request.signature
        assert tuple(predict.output_filter) == request.outputs
        assert set(predict.inputs) == set(request.inputs)
        for name, values in request.inputs.items():
            tensor = tf.make_ndarray(predict.inputs[name])
            if values.dtype == object:
                tensor = np.char.decode(tensor.astype(bytes), "utf-8")
            assert tensor.tolist() == values.tolist()


@pytest.mark.parametrize("size", [0, 1, 127, 128, 16_383, 16_384, 3_000_000])
def test_fields_of_any_length_are_read(size):
    log = pytest.importorskip("tensorflow_serving.apis.prediction_log_pb2")
    request = Request("serving_default", {"text": np.array(["x" * size], object)}, ("score",))
    predict = log.PredictionLog.FromString(prediction_log("a model", request))
    (text,) = predict.predict_log.request.inputs["text"].string_val
    assert text == b"x" * size


def test_every_signature_is_warmed_up(translator, session):
    warm = {request.signature for request in asked_of(translator) if not request.outputs}
    assert warm == set(session.signatures)
