"""Training text from a small grammar: trees, labelled sentences and sentence pairs."""

import random
import re
from pathlib import Path

NOUNS = ("cat", "dog", "bird", "fish")
# English as in the built-in corpus, and other text.
SOURCE = """\
The old man sees a red house.
Today is November 9, 1972.

His apple costs 9.99 euros, because it is small and he has waited in Berlin for two hours.
中文 🙂 and a  double space
"""
TARGET = """\
Der alte Mann sieht ein rotes Haus.
Heute ist der 9. November 1972.

Sein Apfel kostet 9,99 Euro.
中文
"""


def write_texts(folder: Path) -> None:
    """Writes train.* and dev.*, and in.en with its translation in.de."""
    (folder / "in.en").write_text(SOURCE, "utf-8")
    (folder / "in.de").write_text(TARGET, "utf-8")
    for name, number, seed in (("train", 300, 1), ("dev", 12, 2)):
        rng = random.Random(seed)
        trees = [_tree(rng) for _ in range(number)]
        sentences = [" ".join(re.findall(r" ([^ ()]+)\)", tree)) for tree in trees]
        for ending, lines in {
            "ptb": trees,
            "tsv": [f"{sentence.split()[1]}\t{sentence}" for sentence in sentences],
            "ab": sentences,
            "ba": [" ".join(reversed(sentence.split())) for sentence in sentences],
        }.items():
            text = "".join(f"{line}\n" for line in lines)
            (folder / f"{name}.{ending}").write_text(text, "utf-8")


def _tree(rng: random.Random) -> str:
    verb = rng.choice(("sees", "likes", "finds"))
    return f"(ROOT (S {_noun_phrase(rng)} (VP (VBZ {verb}) {_noun_phrase(rng)}) (. .)))"


def _noun_phrase(rng: random.Random) -> str:
    words = f"(DT {rng.choice(('the', 'a'))}) (NN {rng.choice(NOUNS)})"
    if rng.random() < 0.7:
        return f"(NP {words})"
    return f"(NP (NP {words}) (PP (IN {rng.choice(('near', 'with'))}) {_noun_phrase(rng)}))"
