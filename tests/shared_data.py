"""Corpora with published figures, which lie beside the repository and are no part of it."""

import gzip
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

_BESIDE = Path(__file__).parents[2] / "shared" / "data"
FOLDER = Path(os.environ.get("TF_TRANSFORMER_SHARED_DATA", _BESIDE))


def shared_data(name: str) -> Path:
    """The folder of a data set; the test that asks for one that is absent is skipped."""
    path = FOLDER / name
    if not path.is_dir():
        pytest.skip(f"{path} is not there; TF_TRANSFORMER_SHARED_DATA may name its folder")
    return path


def lines_of(path: Path) -> list[str]:
    """The lines of a plain or gzipped UTF-8 file, split at line feeds only, each as it is."""
    data = path.read_bytes()
    text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode("utf-8")
    return text.removesuffix("\n").split("\n")


@dataclass(frozen=True)
class ScoredOutput:
    """The translations of a WMT system, the references, and the scores to be found, by name."""

    name: str
    hypotheses: list[str]
    references: list[list[str]]
    scores: dict[str, str]


def scored_outputs(test_set: str) -> Iterator[ScoredOutput]:
    """All systems of bleu-check/wmt17-ende or wmt22-ende."""
    folder = shared_data("bleu-check") / test_set
    references = [lines_of(path) for path in sorted(folder.glob("ref*.gz"))]
    names, *rows = [line.split("\t") for line in lines_of(folder / "scores.tsv")]
    for system, *scores in rows:
        hypotheses = lines_of(folder / f"hyp.{system}.de.gz")
        found = dict(zip(names[1:], scores, strict=True))
        yield ScoredOutput(system, hypotheses, references, found)


def to_the_digits_of(value: float, printed: str) -> str:
    """The value with as many decimals as a printed one has."""
    return f"{value:.{len(printed.partition('.')[2])}f}"
