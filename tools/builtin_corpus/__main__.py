"""`python -m tools.builtin_corpus`: writes the package's built-in sentence pairs."""

import bz2
from pathlib import Path

from tools.builtin_corpus.sentences import generate

NUM_PAIRS, SEED = 21_000, 0
PATH = Path(__file__).parents[2] / "tf_transformer" / "data" / "builtin.tsv.bz2"


if __name__ == "__main__":
    lines = "".join(f"{english}\t{german}\n" for english, german in generate(NUM_PAIRS, SEED))
    PATH.write_bytes(bz2.compress(lines.encode()))
    print(f"{PATH}: {NUM_PAIRS:,} pairs of seed {SEED}")
