"""A served model, and HTTP calls to it."""

import http.client
import json
from pathlib import Path

from tf_transformer.serving.loaded import LoadedVersion, LoadedVersions

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


def one_version(session, lanes) -> LoadedVersions:
    """Version 1 of "small", already loaded."""
    version = LoadedVersion(1, session, lanes)
    loaded = LoadedVersions(lambda: {1: Path()}, lambda *_: version, "small")
    loaded.update()
    return loaded
