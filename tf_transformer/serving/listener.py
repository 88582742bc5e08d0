"""Connections of the HTTP server: room for new ones, errors as JSON, and shutting down."""

import json
import logging
import socket
import time
from collections.abc import Callable
from typing import Any

from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask


class _JSONError(ErrorTask):
    """Formats errors of waitress like those of the application."""

    def execute(self) -> None:
        error = self.request.error
        text = f"{error.reason}: {error.body}."
        if error.code == 413:  # waitress refuses bodies from this size on
            most = self.channel.adj.max_request_body_size - 1
            text = f"A request must have at most {most} bytes (--max-body)."
        body = json.dumps({"error": text}).encode()
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", "application/json"))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(HTTPChannel):
    error_task_class = _JSONError


class Listener(TcpWSGIServer):
    """A waitress server in which no client can keep connections that others need.

    When all are taken, the oldest connection with no answer pending is closed, even if it sends
    a byte now and then.

    Args:
        app: the WSGI application.
        bound: a socket with an address, on which connections are now accepted.
        max_body: maximum bytes of a request's body.
        connections: maximum number of connections.
        idle: seconds after which one without a request is closed.
    """

    accepting: bool  # set by waitress
    channel_class = _Channel
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
