"""One exported model for all tests of serving."""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from made_once import made_once

from tf_transformer.config import DecodingConfig
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.run import Run
from tf_transformer.serving.batcher import BatchLimits
from tf_transformer.serving.lanes import Lanes, Meter, token_limits
from tf_transformer.serving.publish import export
from tf_transformer.serving.session import SavedModelSession
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
    """`start(limits, waiting=1)` serves the exported model over HTTP and returns the port."""
    pytest.importorskip("flask")
    pytest.importorskip("waitress")
    from tf_transformer.serving.server import Limits, make_app, make_server

    running = []

    def start(limits: Limits, **of_batches) -> int:
        lanes = make_lanes(**of_batches)
        app = make_app(session, lanes, "small", 1, limits)
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
    return lambda **limits: Lanes(session, meter, BatchLimits(**limits))
