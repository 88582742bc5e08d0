"""One exported model for all tests of serving."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from http_calls import one_version
from made_once import made_once

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.run import Run
from tf_transformer.serving.batcher import BatchLimits
from tf_transformer.serving.lanes import Lanes, Meter, token_limits
from tf_transformer.serving.session import SavedModelSession
from tf_transformer.serving.translations import export
from tf_transformer.tasks.models import load_translator

DECODING = DecodingConfig(beam_size=4, alpha=0.6)


@pytest.fixture(scope="session")
def translator(trained_run) -> BatchTranslator:
    return load_translator(Run.open(trained_run.path), "best", DECODING)


@pytest.fixture(scope="session")
def n_best_translator(translator) -> BatchTranslator:
    return BatchTranslator(translator.model, translator.tokenizer, DECODING, DECODING.beam_size)


@pytest.fixture(scope="session")
def text_free(translator, tmp_path_factory) -> Path:
    """As `exported`, without text."""

    def make(folder: Path) -> Path:
        return export(translator, folder / "ids", card={"description": "ids"}, text=False)

    return made_once(tmp_path_factory, "text-free", make)


@pytest.fixture(scope="session")
def session(exported) -> Iterator[SavedModelSession]:
    with SavedModelSession(exported) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def start(session, make_lanes) -> Iterator[Callable[..., int]]:
    """`start(limits, access_log, waiting=1)` serves the exported model: the port."""
    pytest.importorskip("flask")
    pytest.importorskip("waitress")
    from tf_transformer.serving.server import Limits, make_app, make_server
    from tf_transformer.serving.telemetry import Telemetry

    running = []

    def start(limits: Limits, access_log=None, **of_batches) -> int:
        telemetry = Telemetry(lambda: loaded.waiting(), lambda: loaded.numbers())
        lanes = make_lanes(telemetry, **of_batches)
        loaded = one_version(session, lanes)
        app = make_app(loaded, "small", limits, telemetry, access_log)
        server = make_server(app, "localhost", 0, limits)
        threading.Thread(target=server.run, daemon=True).start()
        running.append((server, lanes))
        return server.effective_port

    yield start
    for server, lanes in running:
        server.close()
        lanes.close()


@pytest.fixture(scope="session")
def make_lanes(session, exported) -> Callable[..., Lanes]:
    """`make_lanes(waiting=1)`: lanes of the exported model with these limits of batches."""
    meter = Meter(session, token_limits(exported))
    return lambda observer=None, **limits: Lanes(
        session, meter, BatchLimits(**limits), observer
    )
