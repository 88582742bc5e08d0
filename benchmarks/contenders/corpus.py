"""Prepares the text for the benchmarks, with the package's own functions.

The folder contains source.txt, target.txt, tokenizer.model and encoded/ (ids and lengths).
"""

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path

from harness.child import serve

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import new_folder
from tf_transformer.data import builtin
from tf_transformer.data.encoded_corpus import encode_corpus
from tf_transformer.data.text import read_pairs, resolve_prefix
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import train_tokenizer

LIMITS = {"max_length": 128, "max_ratio": 4.0}


def setup(corpus: str | None, source: str, target: str, pairs: int) -> dict:
    """Args:
    corpus: a prefix of parallel text, or None for the built-in corpus.
    source, target: its languages.
    pairs: maximum number of pairs to take, from the beginning.
    """

    def write(path: str) -> dict:
        chosen = _pairs(corpus, source, target, pairs)
        with new_folder(Path(path)) as folder:
            sides = zip(*chosen, strict=True)
            for name, lines in zip(("source", "target"), sides, strict=True):
                text = "".join(f"{line}\n" for line in lines)
                (folder / f"{name}.txt").write_text(text, "utf-8")
            model = folder / "tokenizer.model"
            lines = [line for pair in chosen for line in pair]
            note = _train_tokenizer(lines, model, 8_000 if corpus else 1_000)
            encode_corpus([chosen], Tokenizer(model), folder / "encoded", **LIMITS)
        return note

    return {"write": write}


def _train_tokenizer(lines: Sequence[str], model: Path, vocab_size: int) -> dict[str, str]:
    """Trains the number of pieces that the text allows; returns a note if it is another."""
    try:
        train_tokenizer(lines, model, vocab_size=vocab_size, kind="bpe")
    except UserError as error:
        bound = re.search(r"must be at (?:most|least) (\d+)", str(error))
        if not bound:
            raise
        train_tokenizer(lines, model, vocab_size=int(bound[1]), kind="bpe")
        return {"note": f"using {bound[1]} pieces: the text does not allow {vocab_size}"}
    return {}


def _pairs(corpus: str | None, source: str, target: str, most: int) -> list[tuple[str, str]]:
    with tempfile.TemporaryDirectory() as folder:
        if corpus is None:
            source, target = builtin.LANGUAGES
            corpus = str(builtin.write_splits(Path(folder))["train"])
        files = [resolve_prefix(corpus, each) for each in (source, target)]
        return [pair for pair, _ in zip(read_pairs(*files), range(most), strict=False)]


if __name__ == "__main__":
    serve(setup)
