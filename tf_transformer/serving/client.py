"""Clients of a served model, over REST or gRPC: columns of strings in, outputs by name.

A client raises `ServerError` for whatever went wrong on the way or at the server.
"""

import contextlib
import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar
from urllib.parse import quote

from tf_transformer.errors import UserError
from tf_transformer.files import parse_json

Columns = dict[str, list]
Answer = TypeVar("Answer")


class ServerError(Exception):
    """What a server answered instead of outputs.

    Attributes:
        code: of HTTP or gRPC, or a word for what went wrong on the way.
        retry_after: the seconds after which a busy server may be asked again, if it says so.
    """

    def __init__(self, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retry_after = retry_after


class Client(Protocol):
    """Asks one model."""

    def predict(self, signature: str, inputs: Columns) -> Columns:
        """The outputs of a signature, each with a value for each row of the inputs."""


class RestClient:
    """Talks to /v1/models of TF Serving or of `tf-transformer serve`.

    Args:
        url: such as http://localhost:8501.
        model: its name.
        deadline: seconds to wait for an answer.
    """

    def __init__(self, url: str, model: str, deadline: float) -> None:
        self._url = f"{url.rstrip('/')}/v1/models/{quote(model)}:predict"
        self._deadline = deadline

    def predict(self, signature: str, inputs: Columns) -> Columns:
        body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
        try:
            with urllib.request.urlopen(self._url, body, self._deadline) as answer:
                outputs = parse_json(answer.read())["outputs"]
        except urllib.error.HTTPError as error:
            pause = _pause(error) if error.code == 503 else None
            raise ServerError(str(error.code), _reason(error.read()), pause) from None
        except TimeoutError:
            raise ServerError("DEADLINE", f"no answer in {self._deadline:g} s") from None
        except http.client.HTTPException as error:
            raise ServerError("UNAVAILABLE", f"no HTTP answer: {error!r}") from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise ServerError("DEADLINE", f"no answer in {self._deadline:g} s") from None
            raise ServerError("UNAVAILABLE", str(reason)) from None
        return outputs


def _reason(body: bytes) -> str:
    try:
        return parse_json(body)["error"]
    except (ValueError, LookupError, TypeError):
        return body.decode("utf-8", "replace").strip()


def _pause(answer: urllib.error.HTTPError) -> float | None:
    """The seconds of Retry-After; None without them, or for a date."""
    with contextlib.suppress(ValueError):
        return float(int(answer.headers.get("Retry-After", "")))
    return None


class GrpcClient:
    """Talks to the PredictionService of TF Serving.

    Args:
        address: HOST:PORT.
        model: its name.
        deadline: seconds to wait for an answer.

    Raises:
        UserError: if tensorflow-serving-api is not installed.
    """

    def __init__(self, address: str, model: str, deadline: float) -> None:
        try:
            import grpc
            from tensorflow_serving.apis import prediction_service_pb2_grpc
        except ImportError as error:
            raise UserError(
                f"--grpc needs {error.name}, which is not installed: "
                "pip install 'tf-transformer[client]'"
            ) from None
        self._channel = grpc.insecure_channel(address)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._model = model
        self._deadline = deadline

    def predict(self, signature: str, inputs: Columns) -> Columns:
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        request = PredictRequest()
        request.model_spec.name = self._model
        request.model_spec.signature_name = signature
        for name, values in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
        try:
            answer = self._stub.Predict(request, timeout=self._deadline)
        except grpc.RpcError as error:
            raise ServerError(error.code().name, error.details()) from None
        return {
            name: _plain(tf.make_ndarray(tensor).tolist())
            for name, tensor in answer.outputs.items()
        }


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(one) for one in value]
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def translate(client: Client, texts: Sequence[str]) -> list[str]:
    """The best translation of each text.

    Raises:
        ServerError: also if the answer has not as many translations as there are texts.
    """
    outputs = client.predict("serving_default", {"text": list(texts)})
    found = outputs.get("translation") if isinstance(outputs, dict) else None
    if not isinstance(found, list) or len(found) != len(texts):
        raise ServerError("INVALID_ANSWER", f"expected translations of {len(texts)} texts")
    return found


def patiently(ask: Callable[[], Answer], seconds: float) -> Answer:
    """The result of `ask`, tried again as often as a busy server wants that.

    Args:
        ask: a request.
        seconds: how long to go on: no try begins later.

    Raises:
        ServerError: the last one.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except ServerError as error:
            if error.retry_after is None or time.monotonic() + error.retry_after > end:
                raise
            time.sleep(max(error.retry_after, 0.1))
