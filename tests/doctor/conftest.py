"""Fixtures for the tests of the data checks."""

from collections.abc import Callable, Sequence

import pytest

from tf_transformer.data.corpora import ParallelText
from tf_transformer.doctor.survey import Survey, take_survey

Pairs = Sequence[tuple[str, str]]


@pytest.fixture
def corpus(tmp_path) -> Callable[[str, Pairs], ParallelText]:
    """`corpus("dev", pairs)` writes pairs to dev.en and dev.de."""

    def write(name: str, pairs: Pairs) -> ParallelText:
        files = [tmp_path / f"{name}.{language}" for language in ("en", "de")]
        for side, file in enumerate(files):
            text = "".join(f"{pair[side]}\n" for pair in pairs)
            file.write_text(text, "utf-8", newline="")
        return ParallelText(name, *files, ("en", "de"))

    return write


@pytest.fixture
def survey(corpus) -> Callable[..., Survey]:
    """`survey(pairs, "dev")` writes pairs and takes their survey."""
    return lambda pairs, name="train", **how: take_survey(name, [corpus(name, pairs)], **how)
