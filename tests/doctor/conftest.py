"""What the tests of the data checks share."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tf_transformer.data.corpora import ParallelText
from tf_transformer.doctor.survey import Survey, take_survey


@pytest.fixture
def survey(tmp_path) -> Callable[..., Survey]:
    """`survey(pairs, "dev")` writes pairs to dev.en and dev.de and takes their survey."""

    def take(pairs: Sequence[tuple[str, str]], name: str = "train", **options) -> Survey:
        files = [write(pairs, tmp_path / f"{name}.{language}") for language in ("en", "de")]
        return take_survey(name, [ParallelText(name, *files, ("en", "de"))], **options)

    def write(pairs: Sequence[tuple[str, str]], path: Path) -> Path:
        lines = [pair[path.suffix == ".de"] for pair in pairs]
        path.write_text("".join(f"{line}\n" for line in lines), "utf-8", newline="")
        return path

    return take
