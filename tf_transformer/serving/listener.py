"""The HTTP server's connections: which gives way to a new one, errors, and how serving ends."""

import json
import time
from collections.abc import Callable

from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask


class _JSONError(ErrorTask):
    """Words what waitress refuses by itself as the application words its errors."""

    def execute(self) -> None:
        error = self.request.error
        body = json.dumps({"error": f"{error.reason}: {error.body}."}).encode()
        self.status = f"{error.code} {error.reason}"
        self.response_headers.append(("Content-Type", "application/json"))
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _Channel(HTTPChannel):
    error_task_class = _JSONError


class Listener(TcpWSGIServer):
    """waitress's server, in which nobody can hold connections that others need.

    When all are taken, the oldest connection that has no request under way is closed, whether
    it is silent or sends a byte now and then.
    """

    channel_class = _Channel
    _told_to_stop = False

    def readable(self) -> bool:
        """Whether to accept; asked by waitress before each wait for the network."""
        self._make_room()
        return super().readable()

    def _make_room(self) -> None:
        excess = len(self._map) + 2 - self.adj.connection_limit  # room for two more
        if excess > 0:
            channels = list(self.active_channels.values())
            idle = [one for one in channels if not (one.requests or one.total_outbufs_len)]
            for channel in sorted(idle, key=lambda one: one.creation_time)[:excess]:
                channel.will_close = True

    def serve(self, alive: Callable[[], bool]) -> None:
        """Serves until `stop` is called, or `alive()` is false."""
        while not self._told_to_stop and alive():
            self._wait(1.0)

    def stop(self) -> None:
        """Ends `serve`; a signal handler may call it."""
        self._told_to_stop = True
        self.pull_trigger()

    @property
    def unanswered(self) -> int:
        """The number of requests that arrived in full and are not yet answered."""
        channels = list(self.active_channels.values())
        return sum(len(one.requests) or bool(one.total_outbufs_len) for one in channels)

    def drain(self, seconds: float) -> None:
        """Accepts no connection any more, and waits for the answers at most some seconds."""
        if self.accepting:
            self.accepting = False
            self.del_channel()
            self.socket.close()
        end = time.monotonic() + seconds
        while self.unanswered and time.monotonic() < end:
            self._wait(0.1)

    def _wait(self, seconds: float) -> None:
        wasyncore.loop(seconds, use_poll=True, map=self._map, count=1)
