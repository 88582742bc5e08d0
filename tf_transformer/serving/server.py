"""An HTTP server for one model: TF Serving's REST paths, and a page to try the model.

What a client may cost is bounded: the size of a body and the time to send it, the rows of a
request, the positions of a batch, the length of the queue, the time spent in it, and the
connections.
"""

import json
import logging
import re
import time
import uuid
from concurrent.futures import CancelledError
from datetime import UTC, datetime
from importlib import resources

from tf_transformer.errors import missing_extra
from tf_transformer.export.session import BadRequestError, ClosedError

try:
    import flask
    import waitress  # noqa: F401, for `listener`
    from werkzeug.exceptions import HTTPException

    from tf_transformer.serving.loaded import NotReadyError, ServedModel, UnknownVersionError
    from tf_transformer.serving.queue import BatchError, QueueFullError
    from tf_transformer.serving.rest import (
        format_response,
        metadata,
        model_status,
        parse_request,
    )
    from tf_transformer.serving.telemetry import Telemetry
except ImportError as error:
    raise missing_extra("serve", error.name, "serve") from None

logger = logging.getLogger(__name__)

# By exception: the status, the message (by default its own), and the reason in the metrics.
_ERRORS: dict[type[BaseException], tuple[int, str, str]] = {
    BadRequestError: (400, "", "bad request"),
    UnknownVersionError: (404, "", "unknown version"),
    NotReadyError: (503, "The model is being loaded. Try again.", "loading"),
    QueueFullError: (503, "Too many requests are waiting. Try again.", "queue full"),
    BatchError: (503, "The server failed on this batch of requests. Try again.", "failure"),
    ClosedError: (503, "The server is stopping. Try again.", "stopping"),
    CancelledError: (503, "The server is stopping. Try again.", "stopping"),
    TimeoutError: (504, "The answer took too long.", "deadline"),
}

_PROBES = ("/healthz", "/readyz")  # polled every few seconds, even before a model is loaded

# The page contains its own script and style, and connects to no other server.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


def make_app(
    model: ServedModel,
    telemetry: Telemetry,
    deadline: float = 30.0,
    access_log: str = "off",
) -> flask.Flask:
    """Returns the WSGI application that serves a model under its name.

    Args:
        model: the model.
        telemetry: its metrics.
        deadline: seconds until a request is answered with 504.
        access_log: answers to log as lines of JSON: "off", "errors" (statuses of 400 and
            above, except those of probes) or "all".
    """
    app = flask.Flask(__name__)

    def metrics():
        return flask.Response(telemetry.page(), content_type="text/plain; version=0.0.4")

    app.add_url_rule("/", "page", lambda: _page(model.name))
    app.add_url_rule("/healthz", "healthz", lambda: _health(model.alive))
    app.add_url_rule("/readyz", "readyz", lambda: _health(model.ready))
    app.add_url_rule("/monitoring/prometheus/metrics", "metrics", metrics)
    _add_model(app, model, telemetry, deadline)
    _observe(app, telemetry, access_log)
    return app


def _add_model(
    app: flask.Flask, model: ServedModel, telemetry: Telemetry, deadline: float
) -> None:
    """Adds the REST paths of TF Serving."""

    def predict(number=None):
        with model.use(number) as version:
            request = parse_request(flask.request.get_data(), version.session)
            flask.g.signature = request.signature
            answer = version.queue.submit(request.signature, request.inputs, deadline)
            try:
                outputs = answer.result(deadline)
            finally:
                answer.cancel()  # not computed if the client timed out in the queue
            telemetry.tokens_written.inc(version.counter.written(outputs))
        return _reply(format_response(outputs, request.by_row))

    def status(number=None):
        states = model.states()
        if number is not None and number not in states:
            raise UnknownVersionError(f"There is no version {number} of {model.name}.")
        chosen = states if number is None else {number: states[number]}
        return _reply(json.dumps(model_status(chosen)))

    def describe(number=None):
        with model.use(number) as version:
            return _reply(json.dumps(metadata(version.session, model.name, version.number)))

    path = f"/v1/models/{model.name}"
    for prefix in (path, f"{path}/versions/<int:number>"):
        app.add_url_rule(prefix, "status", status)
        app.add_url_rule(f"{prefix}/metadata", "metadata", describe)
        app.add_url_rule(f"{prefix}:predict", "predict", predict, methods=["POST"])


def _observe(app: flask.Flask, telemetry: Telemetry, access_log: str) -> None:
    """Counts, times and logs every answer, and adds the request id to it."""

    @app.before_request
    def begin():
        flask.g.start = time.monotonic()

    @app.errorhandler(Exception)
    def explain(error):
        if isinstance(error, HTTPException):
            status, text, reason = error.code or 500, error.description or "", "http"
        elif type(error) in _ERRORS:
            status, text, reason = _ERRORS[type(error)]
        else:
            logger.error("a request failed", exc_info=error)
            status, text, reason = 500, "The server failed on this request.", "failure"
        flask.g.error = text or str(error)
        telemetry.refused.labels(reason).inc()
        return _reply(json.dumps({"error": flask.g.error}), status)

    @app.after_request
    def finish(response):
        request, seen = flask.request, flask.g
        seconds, signature = time.monotonic() - seen.start, seen.get("signature")
        endpoint = signature or request.endpoint or "unknown"
        telemetry.requests.labels(endpoint, response.status_code).inc()
        telemetry.request_seconds.labels(endpoint).observe(seconds)
        sent = request.headers.get("X-Request-Id", "")
        is_good = re.fullmatch(r"[\w.:-]{1,128}", sent, re.ASCII)
        request_id = sent if is_good else uuid.uuid4().hex
        response.headers["X-Request-Id"] = request_id
        is_error = response.status_code >= 400 and request.path not in _PROBES
        if access_log == "all" or (access_log == "errors" and is_error):
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            record = {
                "time": now.replace("+00:00", "Z"), "status": response.status_code,
                "request_id": request_id, "client": request.remote_addr,
                "method": request.method, "path": request.path, "signature": signature,
                "milliseconds": round(1000 * seconds, 1), "bytes": response.content_length,
                "error": seen.get("error"),
            }  # fmt: skip
            known = {name: value for name, value in record.items() if value is not None}
            logger.info("%s", json.dumps(known))
        return response


def _page(name: str) -> flask.Response:
    """Returns the page to try the model, with the model's name filled in."""
    file = resources.files("tf_transformer.serving").joinpath("page.html")
    quoted_name = json.dumps(name).replace("<", "\\u003c")
    html = file.read_text("utf-8").replace("MODEL_NAME", quoted_name)
    return flask.Response(html, headers=_PAGE_HEADERS)


def _health(good: bool) -> flask.Response:
    return flask.Response("ok\n" if good else "no\n", 200 if good else 503)


def _reply(body: str, status: int = 200) -> flask.Response:
    headers = {"Retry-After": "1"} if status == 503 else None
    return flask.Response(body, status, headers, mimetype="application/json")
