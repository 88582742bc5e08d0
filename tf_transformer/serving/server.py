"""An HTTP server for one SavedModel: TF Serving's REST paths, and a page to try the model.

What a client may cost is bounded: the size of a body and the time to send it, the rows and
tokens of a request, the length of the queue, the time spent in it, and the connections.
"""

import json
import logging
import re
import time
import uuid
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as DeadlineError
from dataclasses import dataclass
from importlib import resources

from tf_transformer.errors import missing_extra
from tf_transformer.serving.addresses import check_address, listening_errors
from tf_transformer.serving.batcher import QueueFullError
from tf_transformer.serving.loaded import LoadedVersions, NotReadyError, UnknownVersionError
from tf_transformer.serving.rest import format_response, metadata, model_status, parse_request
from tf_transformer.serving.session import BadRequestError, ClosedError

try:
    import flask
    from werkzeug.exceptions import HTTPException

    from tf_transformer.serving.listener import Listener
    from tf_transformer.serving.telemetry import AccessLog, Telemetry
except ImportError as error:
    raise missing_extra("serve", error.name, "serve") from None

logger = logging.getLogger(__name__)

# The page contains its own script and style, and connects to no other server.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Limits:
    """Limits of a server, with times in seconds; see also `BatchLimits`."""

    body_bytes: int = 1 << 20
    deadline: float = 30.0
    idle: int = 30
    connections: int = 256


def make_app(
    versions: LoadedVersions,
    name: str,
    limits: Limits,
    telemetry: Telemetry | None = None,
    access_log: AccessLog | None = None,
) -> flask.Flask:
    """Returns the WSGI application that serves the loaded versions of a model under `name`."""
    app = flask.Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = limits.body_bytes
    telemetry = telemetry or Telemetry(versions.waiting, versions.numbers)

    def metrics():
        return flask.Response(telemetry.page(), content_type="text/plain; version=0.0.4")

    app.add_url_rule("/", "page", lambda: _page(name))
    app.add_url_rule("/healthz", "healthz", lambda: _health(versions.alive))
    app.add_url_rule("/readyz", "readyz", lambda: _health(versions.ready))
    app.add_url_rule("/monitoring/prometheus/metrics", "metrics", metrics)
    _add_model(app, versions, name, limits, telemetry)
    _observe(app, telemetry, access_log or AccessLog("off"))
    return app


def _add_model(
    app: flask.Flask, versions: LoadedVersions, name: str, limits: Limits, telemetry: Telemetry
) -> None:
    """Adds the REST paths of TF Serving for the model."""

    def predict(number=None):
        with versions.use(number) as version:
            request = parse_request(flask.request.get_data(), version.session)
            flask.g.signature = request.signature
            answer = version.lanes.submit(request.signature, request.inputs)
            try:
                outputs = answer.result(limits.deadline)
            finally:
                answer.cancel()  # not computed if the client timed out in the queue
            telemetry.wrote(version.lanes.meter.written(outputs))
        return _reply(format_response(outputs, request.by_row))

    def status(number=None):
        states = versions.states()
        if number is not None and number not in states:
            raise UnknownVersionError(f"There is no version {number} of {name}.")
        chosen = states if number is None else {number: states[number]}
        return _reply(json.dumps(model_status(chosen)))

    def describe(number=None):
        with versions.use(number) as version:
            return _reply(json.dumps(metadata(version.session, name, version.number)))

    model = f"/v1/models/{name}"
    for path in (model, f"{model}/versions/<int:number>"):
        app.add_url_rule(path, "status", status)
        app.add_url_rule(f"{path}/metadata", "metadata", describe)
        app.add_url_rule(f"{path}:predict", "predict", predict, methods=["POST"])


def _observe(app: flask.Flask, telemetry: Telemetry, access_log: AccessLog) -> None:
    """Counts, times and logs every answer, and adds the request id to it."""

    @app.before_request
    def begin():
        flask.g.start = time.monotonic()

    @app.errorhandler(Exception)
    def explain(error):
        status, text, reason = _explained(error)
        flask.g.error = text
        telemetry.refused(reason)
        return _reply(json.dumps({"error": text}), status)

    @app.after_request
    def finish(response):
        request, seen = flask.request, flask.g
        seconds = time.monotonic() - seen.start
        signature = seen.get("signature")
        telemetry.answered(signature or request.endpoint or "unknown", response.status_code,
                           seconds)  # fmt: skip
        request_id = _request_id(request.headers.get("X-Request-Id", ""))
        response.headers["X-Request-Id"] = request_id
        access_log.write(response.status_code, {
            "request_id": request_id, "client": request.remote_addr, "method": request.method,
            "path": request.path, "signature": signature,
            "milliseconds": round(1000 * seconds, 1), "bytes": response.content_length,
            "error": seen.get("error"),
        })  # fmt: skip
        return response


def _page(name: str) -> flask.Response:
    """Returns the page to try the model, with the model's name filled in."""
    file = resources.files("tf_transformer.serving").joinpath("page.html")
    quoted_name = json.dumps(name).replace("<", "\\u003c")
    html = file.read_text("utf-8").replace("MODEL_NAME", quoted_name)
    return flask.Response(html, headers=_PAGE_HEADERS)


def _request_id(sent: str) -> str:
    """Returns the request id sent by the client if it is well-formed, else a new one."""
    return sent if re.fullmatch(r"[\w.:-]{1,128}", sent, re.ASCII) else uuid.uuid4().hex


def _health(good: bool) -> flask.Response:
    return flask.Response("ok\n" if good else "no\n", 200 if good else 503)


def _reply(body: str, status: int = 200) -> flask.Response:
    headers = {"Retry-After": "1"} if status == 503 else None
    return flask.Response(body, status, headers, mimetype="application/json")


def _explained(error: Exception) -> tuple[int, str, str]:
    """Returns the status and the text that answer an error, and the reason for metrics."""
    if isinstance(error, HTTPException):
        return error.code or 500, error.description or "", "http"
    if isinstance(error, UnknownVersionError):
        return 404, str(error), "unknown version"
    if isinstance(error, BadRequestError):
        return 400, str(error), "bad request"
    if isinstance(error, NotReadyError):
        return 503, "The model is being loaded. Try again.", "loading"
    if isinstance(error, QueueFullError):
        return 503, "Too many requests are waiting. Try again.", "queue full"
    if isinstance(error, ClosedError | CancelledError):
        return 503, "The server is stopping. Try again.", "stopping"
    if isinstance(error, DeadlineError):
        return 504, "The answer took too long.", "deadline"
    logger.error("a request failed", exc_info=error)
    return 500, "The server failed on this request.", "failure"


def make_server(app: flask.Flask, host: str, port: int, limits: Limits) -> Listener:
    """Returns a listening server; "localhost" means 127.0.0.1 only, without IPv6.

    Raises:
        UserError: if `host` resolves to no address or to several, or the port is taken.
    """
    # waitress would log every request that waits for a thread or a connection.
    logging.getLogger("waitress").setLevel(logging.ERROR)
    host = check_address(host, port)
    with listening_errors(host, port):
        return Listener(
            app,
            host=host,
            port=port,
            threads=limits.connections,  # threads wait for the batcher
            connection_limit=limits.connections + 4,  # includes the server's sockets
            channel_timeout=limits.idle,
            cleanup_interval=max(1, limits.idle // 4),
            max_request_body_size=limits.body_bytes + 1,  # waitress refuses this size itself
            max_request_header_size=16_384,
            asyncore_use_poll=True,
            ident=None,
        )
