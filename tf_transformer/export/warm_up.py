"""Warm-up requests: a file of TF Serving's, which it answers before a model is ready.

TF Serving runs them before it declares a model ready, because a session builds an executor at
the first call for each set of outputs, which takes about a second for a large model. The file
holds PredictionLog messages as protocol buffers, encoded by hand because their classes are in
tensorflow-serving-api, which exports need for nothing else.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import tensorflow as tf

WARM_UP = Path("assets.extra", "tf_serving_warmup_requests")  # TF Serving's path

# Field numbers of tensorflow_serving/apis/{prediction_log,predict,model}.proto.
_PREDICTION_LOG_PREDICT_LOG = 6
_PREDICT_LOG_REQUEST = 1
_REQUEST_MODEL_SPEC, _REQUEST_INPUTS, _REQUEST_OUTPUT_FILTER = 1, 2, 3
_MODEL_SPEC_NAME, _MODEL_SPEC_SIGNATURE_NAME = 1, 3
_MAP_KEY, _MAP_VALUE = 1, 2


@dataclass(frozen=True)
class Request:
    """A call of a signature: inputs by name, and the requested outputs (all if empty)."""

    signature: str
    inputs: Mapping[str, np.ndarray]
    outputs: tuple[str, ...] = ()


def write_requests(folder: Path, model_name: str, requests: Iterable[Request]) -> None:
    """Writes the warm-up file of the SavedModel in `folder`."""
    file = folder / WARM_UP
    file.parent.mkdir(parents=True, exist_ok=True)
    with tf.io.TFRecordWriter(str(file)) as writer:
        for request in requests:
            writer.write(prediction_log(model_name, request))


def prediction_log(model_name: str, request: Request) -> bytes:
    """Returns a serialised tensorflow.serving.PredictionLog with this request."""
    spec = _field(_MODEL_SPEC_NAME, model_name.encode())
    spec += _field(_MODEL_SPEC_SIGNATURE_NAME, request.signature.encode())
    message = _field(_REQUEST_MODEL_SPEC, spec)
    for name, values in request.inputs.items():
        tensor = tf.make_tensor_proto(values).SerializeToString()
        entry = _field(_MAP_KEY, name.encode()) + _field(_MAP_VALUE, tensor)
        message += _field(_REQUEST_INPUTS, entry)
    for name in request.outputs:
        message += _field(_REQUEST_OUTPUT_FILTER, name.encode())
    return _field(_PREDICTION_LOG_PREDICT_LOG, _field(_PREDICT_LOG_REQUEST, message))


def _field(number: int, content: bytes) -> bytes:
    """Encodes a length-delimited field: number and wire type 2, length, content."""
    return _varint(number << 3 | 2) + _varint(len(content)) + content


def _varint(number: int) -> bytes:
    """Encodes seven bits per byte, lowest first; the top bit marks that more follow."""
    digits = bytearray()
    while number > 127:
        digits.append(number & 127 | 128)
        number >>= 7
    return bytes([*digits, number])
