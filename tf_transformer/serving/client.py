"""Clients of a served model, over REST or gRPC: columns of strings in, outputs by name.

A client raises `ServerError` for any failure of the network or the server.
"""

import contextlib
import http.client
import json
import logging
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Protocol, TypeGuard, TypeVar
from urllib.parse import quote

from tf_transformer.errors import missing_extra
from tf_transformer.files import parse_json
from tf_transformer.strings import strings

logger = logging.getLogger(__name__)

Columns = dict[str, list]
Answer = TypeVar("Answer")

_PAUSE = 1.0  # seconds before a retry over gRPC, which has no Retry-After; as `serve` sends


class ServerError(Exception):
    """An error from the server, or on the way to it.

    Attributes:
        code: HTTP or gRPC status, or a word for a network failure.
        retry_after: seconds to wait before a retry, if the server is busy; else None.
    """

    def __init__(self, code: str, message: str, retry_after: float | None = None) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.retry_after = retry_after


class Client(Protocol):
    """Sends requests to one model."""

    def predict(self, signature: str, inputs: Columns) -> Columns:
        """Returns the outputs of a signature, each with one value per row of the inputs."""


class RestClient:
    """Client of the REST API of TF Serving or of `tf-transformer serve`.

    Args:
        url: base URL, such as http://localhost:8501.
        model: name of the model.
        deadline: seconds to wait for an answer.
    """

    def __init__(self, url: str, model: str, deadline: float) -> None:
        self._url = f"{url.rstrip('/')}/v1/models/{quote(model)}:predict"
        self._deadline = deadline

    def predict(self, signature: str, inputs: Columns) -> Columns:
        """Returns the outputs of a signature; see `Client`."""
        body = json.dumps({"signature_name": signature, "inputs": inputs}).encode()
        try:
            with urllib.request.urlopen(self._url, body, self._deadline) as answer:
                return parse_json(answer.read())["outputs"]
        except urllib.error.HTTPError as error:
            pause = _pause(error) if error.code == 503 else None
            raise ServerError(str(error.code), _reason(error.read()), pause) from None
        except http.client.HTTPException as error:
            raise ServerError("UNAVAILABLE", f"no HTTP answer: {error!r}") from None
        except (OSError, ValueError, LookupError, TypeError) as error:
            reason = getattr(error, "reason", error)
            if isinstance(reason, TimeoutError):
                raise ServerError("DEADLINE", f"no answer in {self._deadline:g} s") from None
            raise ServerError("UNAVAILABLE", str(reason)) from None


def _reason(body: bytes) -> str:
    try:
        return parse_json(body)["error"]
    except (ValueError, LookupError, TypeError):
        return body.decode("utf-8", "replace").strip()


def _pause(answer: urllib.error.HTTPError) -> float | None:
    """Returns the seconds of Retry-After; None if it is missing or a date."""
    with contextlib.suppress(ValueError):
        return float(int(answer.headers.get("Retry-After", "")))
    return None


class GrpcClient:
    """Client of TF Serving's PredictionService.

    Args:
        address: HOST:PORT.
        model: name of the model.
        deadline: seconds to wait for an answer.

    Raises:
        UserError: if tensorflow-serving-api is not installed.
    """

    def __init__(self, address: str, model: str, deadline: float) -> None:
        try:
            import grpc
            from tensorflow_serving.apis import prediction_service_pb2_grpc
        except ImportError as error:
            raise missing_extra("--grpc", error.name, "client") from None
        self._channel = grpc.insecure_channel(address)
        self._stub = prediction_service_pb2_grpc.PredictionServiceStub(self._channel)
        self._model = model
        self._deadline = deadline

    def predict(self, signature: str, inputs: Columns) -> Columns:
        """Returns the outputs of a signature; see `Client`."""
        import grpc
        import tensorflow as tf
        from tensorflow_serving.apis.predict_pb2 import PredictRequest

        from tf_transformer.serving.session import plain_lists

        request = PredictRequest()
        request.model_spec.name = self._model
        request.model_spec.signature_name = signature
        for name, values in inputs.items():
            request.inputs[name].CopyFrom(tf.make_tensor_proto(values))
        try:
            answer = self._stub.Predict(request, timeout=self._deadline)
        except grpc.RpcError as error:
            busy = error.code() is grpc.StatusCode.UNAVAILABLE and self._reached()
            pause = _PAUSE if busy else None
            raise ServerError(error.code().name, error.details(), pause) from None
        return {
            name: plain_lists(tf.make_ndarray(tensor).tolist())
            for name, tensor in answer.outputs.items()
        }

    def _reached(self) -> bool:
        """Returns whether the server can be connected to: if not, it is absent, not busy."""
        import grpc

        connected = grpc.channel_ready_future(self._channel)
        try:
            connected.result(_PAUSE)
        except grpc.FutureTimeoutError:
            return False
        finally:
            connected.cancel()
        return True


def best_answers(client: Client, texts: Sequence[str]) -> list[str]:
    """Returns the translation, tree or label of each text; warns if texts were cut.

    This is the output of `serving_default` that has one string per text.

    Raises:
        ServerError: if the request fails, or there is no such output.
    """
    texts = strings("texts", texts)
    outputs = client.predict("serving_default", {"text": texts})
    for values in outputs.values() if isinstance(outputs, dict) else ():
        if _are_strings(values) and len(values) == len(texts):
            if cut := sum(value is True for value in outputs.get("source_cut", ())):
                logger.warning("texts cut at the length limit of the served model: %d", cut)
            return values
    raise ServerError("INVALID_ANSWER", f"expected answers to {len(texts)} texts")


def _are_strings(values: object) -> TypeGuard[list[str]]:
    return isinstance(values, list) and all(isinstance(value, str) for value in values)


def patiently(ask: Callable[[], Answer], seconds: float) -> Answer:
    """Returns the result of `ask`, retrying whenever a busy server asks for that.

    Args:
        ask: sends a request.
        seconds: time after which no retry starts.

    Raises:
        ServerError: if the last attempt fails.
    """
    end = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except ServerError as error:
            if error.retry_after is None or time.monotonic() + error.retry_after > end:
                raise
            time.sleep(max(error.retry_after, 0.1))
