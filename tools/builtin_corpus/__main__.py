"""`python -m tools.builtin_corpus`: writes the package's built-in sentence pairs."""

import bz2
from pathlib import Path

from tools.builtin_corpus.sentences import generate

NUM_PAIRS, SEED = 21_000, 0
PATH = Path(__file__).parents[2] / "tf_transformer" / "data" / "builtin.tsv.bz2"


def content() -> bytes:
    """Returns the pairs as tab-separated UTF-8 lines."""
    return "".join(f"{en}\t{de}\n" for en, de in generate(NUM_PAIRS, SEED)).encode()


if __name__ == "__main__":
    PATH.write_bytes(bz2.compress(content()))
    print(f"{PATH}: {NUM_PAIRS:,} pairs of seed {SEED}")
