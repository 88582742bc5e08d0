"""One exported model for all serving tests, and one server of each kind for it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from command_line import run_here
from http_calls import one_version
from made_once import made_once

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.run import Run
from tf_transformer.serving.batcher import BatchLimits
from tf_transformer.serving.lanes import Lanes, Meter, token_limits
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.tasks.models import load_translator


@pytest.fixture(scope="session")
def translator(trained_run) -> BatchTranslator:
    """The model of `exported`, in Python."""
    return load_translator(Run.open(trained_run.path), "best", DecodingConfig())


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
def make_lanes(session, exported) -> Callable[..., Lanes]:
    """`make_lanes(deadline=1)`: lanes of the exported model with these batch limits."""
    meter = Meter(session, token_limits(exported))
    return lambda observer=None, **limits: Lanes(
        session, meter, BatchLimits(**limits), observer
    )


@contextmanager
def served(session, make_lanes, limits=None, access_log=None, **batch_limits) -> Iterator[int]:
    """Serves the exported model; yields the port."""
    pytest.importorskip("flask")
    pytest.importorskip("waitress")
    from tf_transformer.serving.server import Limits, make_app, make_server
    from tf_transformer.serving.telemetry import Telemetry

    limits = limits or Limits()
    telemetry = Telemetry(lambda: loaded.waiting(), lambda: loaded.numbers())
    lanes = make_lanes(telemetry, **batch_limits)
    loaded = one_version(session, lanes)
    app = make_app(loaded, "small", limits, telemetry, access_log)
    server = make_server(app, "localhost", 0, limits)
    threading.Thread(target=server.run, daemon=True).start()
    yield server.effective_port
    server.close()
    lanes.close()


@pytest.fixture(scope="module")
def start(session, make_lanes) -> Iterator[Callable[..., int]]:
    """`start(limits, access_log, deadline=1)`: the port of a new server for this module."""
    with ExitStack() as stack:
        yield lambda *args, **kwargs: stack.enter_context(
            served(session, make_lanes, *args, **kwargs)
        )


@pytest.fixture(scope="session")
def port(session, make_lanes) -> Iterator[int]:
    """The port of a server with the default limits."""
    with served(session, make_lanes) as port:
        yield port
