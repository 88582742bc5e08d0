"""Labelled sentences that tests make up: the label is in the words."""

import random

WORDS = {
    "animal": ["cat", "dog", "bird", "fish"],
    "colour": ["red", "blue", "green", "white"],
    "number": ["one", "two", "three", "four"],
}
_FILL = ["the", "a", "of", "is", "very", "was", "here", "there", "we", "saw"]


def toy_labels(size: int, seed: int) -> list[str]:
    """Lines of a label, a TAB and up to ten words, one of which is of the label."""
    rng = random.Random(seed)
    lines = []
    for _ in range(size):
        label = rng.choice(sorted(WORDS))
        words = rng.choices(_FILL, k=rng.randrange(1, 10))
        words.insert(rng.randrange(len(words) + 1), rng.choice(WORDS[label]))
        lines.append(f"{label}\t{' '.join(words)} .")
    return lines
