"""One exported model for all serving tests, and one server of each kind for it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from command_line import run_here
from helpers import made_once
from http_calls import one_version

from tf_transformer.cli.export import bound_socket
from tf_transformer.config import DecodingConfig
from tf_transformer.export.session import SavedModelSession
from tf_transformer.run import Run
from tf_transformer.serving.queue import RequestQueue, TokenCounter
from tf_transformer.serving.telemetry import Telemetry
from tf_transformer.tasks.translation.translator import Translator, load_translator


@pytest.fixture(scope="session")
def translator(trained_run) -> Translator:
    """The model of `exported`, in Python."""
    return load_translator(Run.open(trained_run.path), "best", decoding=DecodingConfig())


@pytest.fixture(scope="session")
def text_free(trained_run, tmp_path_factory) -> Path:
    """An export like `exported` but without text, made by the command."""

    def make(folder: Path) -> Path:
        options = ["--checkpoint", "best", "--no-text", "--output", str(folder / "ids")]
        done = run_here(["export", str(trained_run.path), *options])
        assert done.returncode == 0, done.stderr
        return folder / "ids" / "1"

    return made_once(tmp_path_factory, "text-free", make)


@pytest.fixture(scope="session")
def session(exported) -> Iterator[SavedModelSession]:
    with SavedModelSession(exported) as loaded:
        yield loaded


@pytest.fixture(scope="session")
def counter(session, exported) -> TokenCounter:
    return TokenCounter(session, exported)


@contextmanager
def served(
    session, counter, deadline=30.0, access_log="off", max_body=1 << 20, idle=30
) -> Iterator[int]:
    """Serves the exported model; yields the port."""
    pytest.importorskip("flask")
    pytest.importorskip("waitress")
    from tf_transformer.serving.listener import Listener
    from tf_transformer.serving.server import make_app

    telemetry = Telemetry()
    queue = RequestQueue(session, counter, telemetry)
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
