"""An HTTP server for one SavedModel: TF Serving's REST paths, and a page for people.

The cost of a client is bounded: the size of a body and the time to send it, the rows and tokens
of a request, the length of the queue, the time in it, and the number of connections.
"""

import json
import logging
import socket
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as DeadlineError
from dataclasses import dataclass
from importlib import resources

from tf_transformer.errors import UserError, missing_extra
from tf_transformer.serving.batcher import QueueFullError
from tf_transformer.serving.lanes import Lanes
from tf_transformer.serving.rest import format_response, metadata, model_status, parse_request
from tf_transformer.serving.session import BadRequestError, ClosedError, SavedModelSession

try:
    import flask
    from werkzeug.exceptions import HTTPException

    from tf_transformer.serving.listener import Listener
except ImportError as error:
    raise missing_extra("serve", error.name, "serve") from None

logger = logging.getLogger(__name__)

# The page contains its script and style, and connects to no other server.
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


@dataclass(frozen=True)
class Limits:
    """Limits of a server, sizes in bytes and times in seconds; see also `BatchLimits`."""

    body_bytes: int = 1 << 20
    deadline: float = 30.0
    idle: int = 30
    connections: int = 256


def make_app(
    session: SavedModelSession, lanes: Lanes, name: str, version: int, limits: Limits
) -> "flask.Flask":
    """Returns the WSGI application that serves a model under `name`."""
    app = flask.Flask(__name__)
    app.config["MAX_CONTENT_LENGTH"] = limits.body_bytes
    model = f"/v1/models/{name}"
    paths = (model, f"{model}/versions/{version}")

    def predict():
        request = parse_request(flask.request.get_data(), session)
        answer = lanes.submit(request.signature, request.inputs)
        try:
            outputs = answer.result(limits.deadline)
        finally:
            answer.cancel()  # not computed if the client timed out in the queue
        return _reply(format_response(outputs, request.by_row))

    def page():
        file = resources.files("tf_transformer.serving").joinpath("page.html")
        quoted_name = json.dumps(name).replace("<", "\\u003c")
        html = file.read_text("utf-8").replace("MODEL_NAME", quoted_name)
        return flask.Response(html, headers=_PAGE_HEADERS)

    app.add_url_rule("/", view_func=page)
    for number, path in enumerate(paths):
        rules = {
            "": lambda: _reply(json.dumps(model_status(version))),
            "/metadata": lambda: _reply(json.dumps(metadata(session, name, version))),
        }
        for suffix, view in rules.items():
            app.add_url_rule(path + suffix, f"{suffix}{number}", view)
        app.add_url_rule(f"{path}:predict", f"predict{number}", predict, methods=["POST"])
    app.register_error_handler(Exception, _explain)
    return app


def _reply(body: str, status: int = 200) -> "flask.Response":
    headers = {"Retry-After": "1"} if status == 503 else None
    return flask.Response(body, status, headers, mimetype="application/json")


def _explain(error: Exception) -> "flask.Response":
    """Formats an error as TF Serving does: {"error": text}, and never a traceback."""
    status, text = 500, "The server failed on this request."
    if isinstance(error, HTTPException):
        status, text = error.code, error.description
    elif isinstance(error, BadRequestError):
        status, text = 400, str(error)
    elif isinstance(error, QueueFullError):
        status, text = 503, "Too many requests wait already. Try again."
    elif isinstance(error, ClosedError | CancelledError):
        status, text = 503, "The server is stopping. Try again."
    elif isinstance(error, DeadlineError):
        status, text = 504, "The answer took too long."
    else:
        logger.error("a request failed", exc_info=error)
    return _reply(json.dumps({"error": text}), status)


def make_server(app: "flask.Flask", host: str, port: int, limits: Limits) -> "Listener":
    """Returns a server that listens; "localhost" is 127.0.0.1 alone, without IPv6.

    Raises:
        UserError: if `host` stands for no address or for several, or the port is taken.
    """
    try:
        # waitress logs every request that waits for a thread or a connection.
        logging.getLogger("waitress").setLevel(logging.ERROR)
        host = "127.0.0.1" if host == "localhost" else host
        _check_host(host, port)
        return Listener(
            app,
            host=host,
            port=port,
            threads=limits.connections,  # threads wait for the batcher
            connection_limit=limits.connections + 4,  # includes the server's sockets
            channel_timeout=limits.idle,
            cleanup_interval=max(1, limits.idle // 4),
            max_request_body_size=limits.body_bytes,
            max_request_header_size=16_384,
            asyncore_use_poll=True,
            ident=None,
        )
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise UserError(f"Cannot listen on {host}:{port}: {reason}.") from None


def _check_host(host: str, port: int) -> None:
    """Raises UserError for a name with several addresses, each of which needs a server."""
    entries = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
    addresses = sorted({str(address[0]) for *_, address in entries})
    if len(addresses) > 1:
        raise UserError(
            f"Cannot listen on {host!r}: it stands for {' and '.join(addresses)}. Give --host "
            "one of them, or 0.0.0.0 for every IPv4 address."
        )
