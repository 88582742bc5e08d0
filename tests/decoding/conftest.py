"""A translator with a trained model, for several tests."""

import pytest
from trained import DECODING

from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.run import Run
from tf_transformer.tasks.models import load_translator


@pytest.fixture(scope="session")
def translator(trained_run) -> BatchTranslator:
    """The four best of four beams."""
    return load_translator(Run.open(trained_run.path), "best", DECODING, 4)


@pytest.fixture(scope="session")
def texts(trained_run) -> list[str]:
    """Sentences of every length, blank and foreign ones among them."""
    lines = sorted(trained_run.lines("train.en"), key=len)[::25]
    return [
        lines[-1],
        "",
        *lines[:6],
        " ".join(lines[:5]),
        "  \t",
        *lines[6:],
        "Füße 🙂 中文",
        ".",
    ]
