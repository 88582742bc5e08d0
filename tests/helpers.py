"""What tests share: results made once, corpora with published figures, toy data, snippets."""

import fcntl
import gzip
import os
import pickle
import random
import re
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeVar

import pytest

from tf_transformer.data import builtin
from tools.compare_commits.comparison import arrays

Made = TypeVar("Made")


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]) -> Made:
    """Returns the result of `make(folder)` in the first process that asks for `name`.

    Another process waits for it and gets a copy of the object; the files are the same.
    """
    base = Path(os.environ.get("TF_TRANSFORMER_MADE_ONCE") or factory.getbasetemp())
    made = base / f"{name}.pickle"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
            made.write_bytes(pickle.dumps(make(folder)))
        return pickle.loads(made.read_bytes())


def bits_of(path: Path) -> dict[str, str]:
    """Returns a hash of each array, except times: pytest compares long bytes for an hour."""
    return {name: sha256(array.tobytes()).hexdigest() for name, array in arrays(path).items()}


ROOT = Path(__file__).parent.parent


def snippets(page: str) -> list[str]:
    """The Python blocks of a page, such as "docs/guides/exporting.md", in its order."""
    return re.findall(r"(?ms)^```python\n(.*?)^```$", (ROOT / page).read_text("utf-8"))


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


_KEPT = (
    "", " ", "\t\t", "\u3000", "-----", "| --- | --- |", "```", "42", "3,141.5 \u20ac",
    "...?!\u2026", "(\"'", "\U0001f642" * 9, "\x08\x7f\x00", "https://a.b/c?d",
    "<a.b@c.org>", "\u202e\u202c",
)  # fmt: skip
_TEXT = (
    "| a cat | 12 |", "~~~py", "<b>A dog</b> runs.<br/>", "\x1b[31mred", "\u202eabc\u202c",
    "a\x00b", "\u2067\u0645\u0631\u062d\u0628\u0627\u2069.", "a\u200bb\u200d", "\ufeffHi.",
    "\u4f60\u597d\u3002\u518d.", "e\u0301" * 9, "x" * 900, "word " * 90,
    "Dr. M. i.e. A.B. 19. Z", "a\ufffd\ufffe", "&nbsp;&lt;", "a\u2028b", "{\"a\": [1]}",
    "$(rm x) `ls`", "\xa0a\xa0", "%s %n", "A dog. Two men!  Why?\tNo.", "\x85c\x0bd",
)  # fmt: skip
_MARKS = ("", "", "- ", "  * ", "1. ", "> ", "\t", "# ")


def hostile_lines(number: int, seed: int) -> list[tuple[str, str, str]]:
    """Lines of all that people paste, each a mark, a text and its end."""
    rng = random.Random(seed)
    texts, ends = (*_KEPT, *_TEXT), ("\n", "\n", "\r\n")
    return [(rng.choice(_MARKS), rng.choice(texts), rng.choice(ends)) for _ in range(number)]


def assert_nothing_moved(lines: list[tuple[str, str, str]], translated: str) -> None:
    """Lines without text are as they were; the others keep mark and end."""
    rows = translated.split("\n")
    assert len(rows) == len(lines) + 1 and rows.pop() == ""
    for (mark, text, end), row in zip(lines, rows, strict=True):
        if text in _KEPT:
            assert f"{row}\n" == mark + text + end
        assert f"{row}\n".startswith(mark) and f"{row}\n".endswith(end)


DEFECTS = {
    "empty lines": lambda source, target: [(source, "\u200b")],
    "encoding": lambda source, target: [(source, f"{target} Ã¤")],
    "control characters": lambda source, target: [(f"{source}\x07", target)],
    "HTML entities": lambda source, target: [(source, f"{target} &amp;")],
    "length": lambda source, target: [(f"{source} a" * 100, target)],
    "length ratio": lambda source, target: [(source, f"{target} " * 5)],
    "copies": lambda source, target: [(source, f" {source}")],
    "languages (swapped)": lambda source, target: [(target, source)],
    "languages (target)": lambda source, target: [(source, f"The {source}")],
    "duplicates": lambda source, target: [(source, target)] * 2,
}


def dirty_pairs() -> list[tuple[str, str]]:
    """1,500 pairs of the built-in corpus, 50 of each of `DEFECTS` among the first 1,000."""
    rows = []
    for n, pair in enumerate(builtin.pairs(1_500)):
        defect = [*DEFECTS, *[""] * 10][n % 20] if n < 1_000 else ""
        rows += DEFECTS[defect](*pair) if defect else [pair]
    return rows
