"""The benchmarks are programs beside the package: their folders go on the path here."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[2] / "benchmarks"
sys.path += [str(FOLDER), str(FOLDER / "contenders")]


@pytest.fixture(scope="session")
def prepared(tmp_path_factory) -> str:
    """A part of the built-in corpus, as contenders/corpus.py prepares it."""
    import corpus  # of contenders/

    path = str(tmp_path_factory.mktemp("corpus") / "corpus")
    corpus.setup(None, "en", "de", pairs=2000)["write"](path)
    return path
