"""A served model, and HTTP calls to it."""

import http.client
import json
from types import SimpleNamespace

from tf_transformer.loading.exports import translator_of
from tf_transformer.serving.queue import RequestQueue, Telemetry
from tf_transformer.serving.served_model import ServedModel

PREDICT = "/v1/models/small:predict"


def call(port, method, path, body=None, **headers):
    """Status, headers and text of an answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers, answer.read().decode()
    finally:
        connection.close()


def body_of(*instances, signature="serving_default") -> str:
    return json.dumps({"signature_name": signature, "instances": list(instances)})


def predict(port, *texts, signature="serving_default"):
    status, _, text = call(port, "POST", PREDICT, body_of(*texts, signature=signature))
    return status, json.loads(text)


def queue_of(session, *others) -> RequestQueue:
    return RequestQueue(session.run, session.streams, *others)


def one_version(session, counter, queue, telemetry=None) -> ServedModel:
    """Version 1 of "small", already loaded; the export outlives it."""
    version = SimpleNamespace(
        export=session, translator=translator_of(session, session.decoding),
        streams=session.streams, counter=counter, queue=queue,
    )  # fmt: skip
    telemetry = telemetry or Telemetry()
    model = ServedModel("small", 1, lambda: version, telemetry)
    model.start().join()
    return model
