"""Servers of the exported model."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from http_calls import one_version, queue_of

from tf_transformer.cli.serve import bound_socket
from tf_transformer.serving.queue import Telemetry, TokenCounter


@pytest.fixture(scope="session")
def counter(session) -> TokenCounter:
    return TokenCounter(session)


@contextmanager
def served(
    session, counter, deadline=30.0, access_log="off", max_body=1 << 20, idle=30
) -> Iterator[int]:
    """Serves the exported model; yields the port."""
    pytest.importorskip("flask")
    pytest.importorskip("waitress")
    from tf_transformer.serving.server import Listener, make_app

    telemetry = Telemetry()
    queue = queue_of(session, counter, telemetry)
    model = one_version(session, counter, queue, telemetry)
    app = make_app(model, telemetry, deadline, access_log)
    server = Listener(app, bound_socket("localhost", 0), max_body, idle=idle)
    threading.Thread(target=server.run, daemon=True).start()
    yield server.effective_port
    server.close()
    queue.close(60)


@pytest.fixture(scope="module")
def start(session, counter) -> Iterator[Callable[..., int]]:
    """`start(deadline=1)`: the port of a new server for this module."""
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(
            served(session, counter, *args, **kwargs)
        )


@pytest.fixture(scope="session")
def port(session, counter) -> Iterator[int]:
    """The port of a server with the default limits."""
    with served(session, counter) as port:
        yield port
