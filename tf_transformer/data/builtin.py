"""The built-in parallel corpus: 21,000 English-German sentence pairs.

They were generated from a small grammar (`tools/builtin_corpus` at commit 90ed552). Every
English sentence has exactly one German translation, and every word, number and construction is
frequent, so that a tiny model can learn to translate unseen sentences without error.
"""

import bz2
import itertools
import re
from collections import Counter
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from types import MappingProxyType

from tf_transformer.config import Config
from tf_transformer.data.text import write_pairs

LANGUAGES = ("en", "de")

MOST_PIECES = 4_714  # of a vocabulary of the default kind, trained on the first split

SIZES: Mapping[str, int] = MappingProxyType({"train": 20_000, "dev": 500, "test": 500})

_FILE = "builtin.tsv.bz2"
# Words rarer than this occur only in the first split, the training text.
_RARE = 6


def languages(config: Config) -> tuple[str, str]:
    """Returns source and target language of a configuration; "" if unknown."""
    is_built_in = config.preset and not config.data.train
    return LANGUAGES if is_built_in else (config.data.source, config.data.target)


def pairs(number: int | None = None) -> list[tuple[str, str]]:
    """Returns the first `number` (English, German) pairs; by default all of them.

    No sentence occurs twice, in either language.
    """
    text = bz2.decompress(resources.files(__package__).joinpath(_FILE).read_bytes()).decode()
    lines = text.removesuffix("\n").split("\n")
    columns = (line.split("\t") for line in lines[:number])
    return [(english, german) for english, german in columns]


def write_splits(directory: Path, sizes: Mapping[str, int] = SIZES) -> dict[str, Path]:
    """Writes each split as two files of aligned lines, DIRECTORY/SPLIT.en and .de.

    `sizes` maps each split to its number of pairs; no sentence is in two splits, and pairs
    with rare words go to the first. Files that already have the right content are not touched.
    Returns the prefix of each split's files, for `--train` and `--valid`.
    """
    ordered = iter(_rare_words_first(pairs(sum(sizes.values()))))
    prefixes = {}
    for split, size in sizes.items():
        prefixes[split] = directory / split
        write_pairs(prefixes[split], LANGUAGES, itertools.islice(ordered, size))
    return prefixes


def _rare_words_first(corpus: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """Moves the pairs with rare words to the front; keeps the order otherwise."""
    words = [re.findall(r"\w+", " ".join(pair)) for pair in corpus]
    counts = Counter(itertools.chain.from_iterable(words))
    rarest = [min(counts[word] for word in pair) for pair in words]
    order = sorted(range(len(corpus)), key=lambda index: rarest[index] >= _RARE)
    return [corpus[index] for index in order]
