"""Makes the batches that training is measured on: the product's own, of real text.

Out of all batches of an epoch those at evenly spaced quantiles of length are kept, so that a
few of them have the lengths of the corpus.
"""

import tempfile
from pathlib import Path

import numpy as np
from harness.child import serve

from tf_transformer.data import toy
from tf_transformer.data.batching import BatchPlan, make_dataset
from tf_transformer.data.corpus import read_pairs, resolve_prefixes
from tf_transformer.data.encoded import EncodedCorpus, encode_corpus
from tf_transformer.data.tokenizer import Tokenizer, train_tokenizer
from tf_transformer.files import replacing

PAIRS = 30_000  # of a large corpus, enough for its lengths
PIECES = {"built-in": 1_000, "given": 8_000}


def setup(corpus: str | None, source: str, target: str, batch_tokens: int, number: int) -> dict:
    """Args:
    corpus: a prefix, or None for the built-in corpus.
    source, target: its languages.
    batch_tokens: positions of either side of a batch.
    number: of batches.
    """

    def write(path: str) -> dict:
        with tempfile.TemporaryDirectory() as folder:
            encoded = encode(Path(folder), corpus, source, target)
            arrays = _batches(encoded, batch_tokens, number)
        with replacing(Path(path)) as temporary, temporary.open("wb") as file:
            np.savez(file, **arrays)
        return {}

    return {"write": write}


def pairs_of(
    folder: Path, corpus: str | None, source: str, target: str
) -> list[tuple[str, str]]:
    """The first pairs of a corpus, or the built-in ones."""
    if corpus is None:
        source, target = toy.LANGUAGES
        corpus = str(toy.write_corpus(folder / "text")["train"])
    files = [resolve_prefixes((corpus,), language) for language in (source, target)]
    found = read_pairs(*files)
    return [pair for pair, _ in zip(found, range(PAIRS), strict=False)]


def encode(folder: Path, corpus: str | None, source: str, target: str) -> EncodedCorpus:
    """The corpus as ids, by a tokenizer of its own; both are written to `folder`."""
    pairs = pairs_of(folder, corpus, source, target)
    model = folder / "tokenizer.model"
    size = PIECES["given" if corpus else "built-in"]
    lines = (line for pair in pairs for line in pair)
    train_tokenizer(lines, model, vocab_size=size, kind="bpe")
    return encode_corpus(
        pairs, Tokenizer(model), folder / "encoded", max_length=128, max_ratio=4.0
    )


def _batches(corpus: EncodedCorpus, batch_tokens: int, number: int) -> dict[str, np.ndarray]:
    plan = BatchPlan(
        corpus.source_lengths,
        corpus.target_lengths,
        batch_tokens=batch_tokens,
        max_length=128,
        seed=1,
    )
    steps = sorted(range(plan.steps_per_epoch), key=lambda step: plan.batch(step).length)
    chosen = [steps[int((i + 0.5) * len(steps) / number)] for i in range(number)]
    arrays = {}
    for i, step in enumerate(chosen):
        dataset = make_dataset(corpus, plan, start_step=step, num_steps=1)
        ((inputs, labels),) = dataset.as_numpy_iterator()
        arrays |= {f"source_{i}": inputs["source"], f"target_{i}": inputs["target"]}
        arrays[f"labels_{i}"] = labels
    return arrays


if __name__ == "__main__":
    serve(setup)
