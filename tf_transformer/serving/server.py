"""An HTTP server for one model: TF Serving's REST paths, and a page to try the model.

What a client may cost is bounded: the size of a body and the time to send it, the rows of a
request, the positions of a batch, the length of the queue, the time spent in it, and the
connections.
"""

import functools
import itertools
import json
import logging
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterable
from concurrent.futures import CancelledError
from contextlib import suppress
from datetime import UTC, datetime
from importlib import resources
from typing import Any

from tf_transformer.base.errors import missing_extra, quoted
from tf_transformer.data import builtin
from tf_transformer.decoding.interface import ClosedError, Translation
from tf_transformer.decoding.streams import at_once
from tf_transformer.export.saved_model import column
from tf_transformer.run.checkpoints import Arrays
from tf_transformer.terms.kept import translate_kept

try:
    import flask
    from waitress import wasyncore
    from waitress.server import TcpWSGIServer
    from werkzeug.exceptions import HTTPException, NotFound

    from tf_transformer.serving import rest
    from tf_transformer.serving.queue import MAX_ROWS, BatchError, QueueFullError, Telemetry
    from tf_transformer.serving.served_model import (
        LoadedVersion,
        NotReadyError,
        ServedModel,
        UnknownVersionError,
    )
except ImportError as error:
    raise missing_extra("serve", error.name, "serve") from None

logger = logging.getLogger(__name__)

_DOCUMENTS = 16  # at a time, since each keeps a connection for long


# By exception: the status, the message (by default its own), and the reason in the metrics.
_ERRORS: dict[type[BaseException], tuple[int, str, str]] = {
    rest.BadRequestError: (400, "", "bad request"),
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
    "style-src 'unsafe-inline'; img-src data:; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


def make_app(
    model: ServedModel, telemetry: Telemetry, deadline: float = 30.0, access_log: str = "off"
) -> flask.Flask:
    """Returns the WSGI application that serves a model under its name.

    Requests are answered with 504 after `deadline` seconds. `access_log` says which answers are
    logged as lines of JSON: "off", "errors" (statuses of 400 and above, except those of probes)
    or "all".
    """
    app = flask.Flask(__name__, static_folder=None)
    for _, _, reason in _ERRORS.values():  # an alert must see the first increase of a counter
        telemetry.refused.labels(reason)

    def metrics():
        return flask.Response(telemetry.page(), content_type="text/plain; version=0.0.4")

    app.add_url_rule("/", "page", lambda: _page(model))
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
    places, splitting = threading.Semaphore(_DOCUMENTS), threading.Lock()
    answer = functools.partial(_answer, telemetry, deadline)
    doubts = functools.partial(_doubts, telemetry)

    def predict(number=None):
        version = model.version(number)
        request = rest.parse_request(flask.request.get_data(), version.export)
        flask.g.signature = request.signature
        outputs = answer(version, request.signature, request.inputs)
        found = rest.best_translations(version.counter, request.inputs, outputs)
        remarks = doubts(found, ({"row": row} for row in itertools.count()))
        warnings = [*request.warnings, *remarks]
        return _reply(rest.format_response(outputs, request.by_row, warnings))

    def document(number=None):
        if not places.acquire(blocking=False):  # before any work
            raise QueueFullError
        try:
            version = model.version(number)
            with splitting:  # one at a time, so that others never wait for several
                body = flask.request.get_data()
                parts, kept, warnings = rest.parse_document(body, version.translator)
            compute, cut = functools.partial(answer, version, is_document=True), 0

            def search(rows, texts, begins, several) -> list[list[Translation]]:
                nonlocal cut
                translations, number = _translations(version, compute, texts)
                cut += number
                return [[one] for one in translations]

            sentences = [part.text for part in parts if part.is_sentence]
            own = version.translator
            found = translate_kept(sentences, kept, own.engine, search, own.decoding)
        finally:
            places.release()
        warnings += found.notes
        if cut:
            warnings.append(f"Sentences that were too long and were cut: {cut}")
        numbers = ({"part": n} for n, part in enumerate(parts) if part.is_sentence)
        warnings += doubts([best for best, *_ in found.filled], numbers)
        return _reply(rest.format_document(parts, found, warnings))

    def status(number=None):
        model.require(number)
        return _reply(json.dumps(rest.model_status(model.number, model.state)))

    def describe(number=None):
        export = model.version(number).export
        return _reply(json.dumps(rest.metadata(export, model.name, model.number)))

    path = f"/v1/models/{model.name}"
    for prefix in (path, f"{path}/versions/<int:number>"):
        app.add_url_rule(prefix, "status", status)
        app.add_url_rule(f"{prefix}/metadata", "metadata", describe)
        app.add_url_rule(f"{prefix}:predict", "predict", predict, methods=["POST"])
        app.add_url_rule(f"{prefix}:translateText", "translateText", document, methods=["POST"])


def _doubts(
    telemetry: Telemetry, found: list[Translation], places: Iterable[dict]
) -> list[dict[str, Any]]:
    """Returns place, score and reasons of the translations that look wrong, and counts them."""
    remarks = [
        place | {"score": one.score, "reasons": [*one.warnings]}
        for one, place in zip(found, places, strict=False)
        if one.warnings
    ]
    flask.g.doubtful = len(remarks) or None
    for reason in itertools.chain.from_iterable(one["reasons"] for one in remarks):
        telemetry.doubtful.labels(reason).inc()
    return remarks


def _answer(
    telemetry: Telemetry,
    deadline: float,
    version: LoadedVersion,
    signature: str,
    inputs: Arrays,
    is_document: bool = False,
) -> Arrays:
    queued = version.queue.submit(signature, inputs, deadline, is_document)
    try:
        outputs = queued.result(None if is_document else deadline)
    finally:
        queued.cancel()  # not computed if nobody waits for it any more
    telemetry.tokens_written.inc(version.counter.written(outputs))
    return outputs


def _translations(
    version: LoadedVersion,
    compute: Callable[[str, Arrays], Arrays],
    sentences: list[str],
) -> tuple[list[Translation], int]:
    """Returns the translations of sentences, and how many of these were cut.

    Sentences of similar length are queued together, as many as a request may have, some at a
    time: other clients are answered between them. Each such batch has the deadline.
    """
    order = sorted(range(len(sentences)), key=lambda row: len(sentences[row]))
    batches = [order[start : start + MAX_ROWS] for start in range(0, len(order), MAX_ROWS)]

    def compute_rows(rows: list[int]) -> tuple[Arrays, Arrays]:
        inputs = {"text": column([sentences[row] for row in rows])}
        return inputs, compute("serving_default", inputs)

    found, cut = dict[int, Translation](), 0
    for rows, answer in at_once(batches, compute_rows, version.streams):
        found |= zip(rows, rest.best_translations(version.counter, *answer), strict=True)
        cut += int(answer[1]["source_cut"].sum())
    return [found[row] for row in range(len(sentences))], cut


def _observe(app: flask.Flask, telemetry: Telemetry, access_log: str) -> None:
    """Counts, times and logs every answer, and adds the request id to it."""

    @app.before_request
    def begin():
        flask.g.start = time.monotonic()

    @app.errorhandler(Exception)
    def explain(error):
        if isinstance(error, HTTPException):
            status, text, reason = error.code or 500, _explanation(error, app), "http"
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
        why = seen.get("error", "").partition(" Received:")[0]  # texts are not logged
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
                "doubtful": seen.get("doubtful"), "error": why or None,
            }  # fmt: skip
            known = {name: value for name, value in record.items() if value is not None}
            logger.info("%s", json.dumps(known))
        return response


def _explanation(error: HTTPException, app: flask.Flask) -> str:
    """Returns the text of an error that Flask found before the model was asked."""
    if not isinstance(error, NotFound):
        return error.description or ""
    rules = {re.sub("<.*?>", "NUMBER", rule.rule) for rule in app.url_map.iter_rules()}
    known = ", ".join(sorted(rules))
    return f"There is no path {quoted(flask.request.path)}. There are: {known}."


def _page(model: ServedModel) -> flask.Response:
    """Returns the page to try the model, with what the model's card says of it filled in."""
    facts: dict[str, Any] = {"name": model.name, "rows": MAX_ROWS}
    with suppress(NotReadyError):
        export = model.version().export
        config, sizes = export.config, export.card.get("sizes") or {}
        facts |= {"version": model.number, "tokens": sizes.get("max_source_tokens")}
        facts["slots"] = export.has_slots
        if config and not config.data.tag:
            facts["languages"] = builtin.languages(config)
    html = resources.files("tf_transformer.serving").joinpath("page.html").read_text("utf-8")
    html = html.replace("MODEL_FACTS", json.dumps(facts).replace("<", "\\u003c"))
    return flask.Response(html, headers=_PAGE_HEADERS)


def _health(good: bool) -> flask.Response:
    return flask.Response("ok\n" if good else "no\n", 200 if good else 503)


def _reply(body: str, status: int = 200) -> flask.Response:
    headers = {"Retry-After": "1"} if status == 503 else None
    return flask.Response(body, status, headers, mimetype="application/json")


# --- Connections --------------------------------------------------------------------------


class Listener(TcpWSGIServer):
    """A waitress server in which no client can keep connections that others need.

    When all are taken, the oldest connection with no answer pending is closed, even if it sends
    a byte now and then. So is one without a request after `idle` seconds. `bound` is a socket
    with an address, on which connections are now accepted; `max_body` is in bytes.
    """

    accepting: bool  # set by waitress
    _told_to_stop = False

    def __init__(
        self,
        app: Callable[..., Any],
        bound: socket.socket,
        max_body: int,
        connections: int = 256,
        idle: int = 30,
    ) -> None:
        # waitress would log every request that waits for a thread or a connection.
        logging.getLogger("waitress").setLevel(logging.ERROR)
        super().__init__(
            app,
            _sock=bound,
            sockinfo=(bound.family, bound.type, bound.proto, bound.getsockname()),
            bind_socket=False,
            threads=connections,  # threads wait for the queue
            connection_limit=connections + 4,  # includes the server's sockets
            channel_timeout=idle,
            cleanup_interval=max(1, idle // 4),
            max_request_body_size=max_body + 1,  # waitress refuses this size itself
            max_request_header_size=16_384,
            asyncore_use_poll=True,
            ident=None,
        )

    def readable(self) -> bool:
        """Returns whether to accept; called by waitress before each wait for the network."""
        excess = len(self._map) + 2 - self.adj.connection_limit  # room for two more
        if excess > 0:
            channels = list(self.active_channels.values())
            idle = [c for c in channels if not (c.requests or c.total_outbufs_len)]
            for channel in sorted(idle, key=lambda c: c.creation_time)[:excess]:
                channel.will_close = True
        return super().readable()

    def serve(self, alive: Callable[[], bool]) -> None:
        """Serves until `stop` is called, or `alive()` is false."""
        while not self._told_to_stop and alive():
            self._wait(1.0)

    def stop(self) -> None:
        """Ends `serve`; a signal handler may call it."""
        self._told_to_stop = True
        self.pull_trigger()

    def close(self) -> None:
        """Closes all sockets, and ends `serve`, which would spin without them."""
        self._told_to_stop = True
        super().close()

    @property
    def unanswered(self) -> int:
        """The number of requests that arrived in full and are not yet answered."""
        channels = list(self.active_channels.values())
        return sum(len(c.requests) or bool(c.total_outbufs_len) for c in channels)

    def drain(self, seconds: float) -> None:
        """Stops accepting connections, and waits at most `seconds` for pending answers."""
        if self.accepting:
            self.accepting = False
            self.del_channel()
            self.socket.close()
        end = time.monotonic() + seconds
        while self.unanswered and time.monotonic() < end:
            self._wait(0.1)

    def _wait(self, seconds: float) -> None:
        wasyncore.loop(seconds, use_poll=True, map=self._map, count=1)
