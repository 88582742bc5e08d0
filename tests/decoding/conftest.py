"""A translator with a trained model, and texts for it."""

import pytest
from trained import DECODING

from tf_transformer.run import Run
from tf_transformer.tasks.translation.translator import Translator, load_translator


@pytest.fixture(scope="session")
def translator(trained_run) -> Translator:
    """Searches with four beams."""
    return load_translator(Run.open(trained_run.path), "best", decoding=DECODING)


@pytest.fixture(scope="session")
def texts(trained_run) -> list[str]:
    """Sentences of every length, including blank and foreign ones."""
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
