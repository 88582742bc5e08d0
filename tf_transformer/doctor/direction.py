"""Swapped languages, without a language identifier: which side's n-grams does a line have?

Each side's frequencies of byte 4-grams are learned from the text itself (Cavnar and Trenkle
1994 name languages by such profiles). A line's evidence is its log-likelihood ratio, in nats,
between the two sides. That works as long as most pairs are the right way round.
"""

from collections.abc import Sequence

import numpy as np

ORDER = 4  # bytes: two to four letters
BUCKETS = 2**16
PROFILE_PAIRS = 50_000
CHUNK_PAIRS = 10_000
MAX_WEIGHT = 4.0  # nats; no single n-gram decides
EVIDENCE = 10.0  # nats that each side of a pair must have against it


def learn_direction(sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """Learns the weight of each n-gram, log p(n-gram | source side) / p(n-gram | target side).

    Returns:
        float64 [BUCKETS]; n-grams share a bucket by their hash.
    """
    every = max(1, len(sources) // PROFILE_PAIRS)
    counts = [_count(lines[::every]) for lines in (sources, targets)]
    # Counts of one more, so that no n-gram is impossible.
    source, target = ((count + 1) / (count.sum() + BUCKETS) for count in counts)
    return np.clip(np.log(source / target), -MAX_WEIGHT, MAX_WEIGHT)


def swapped_pairs(
    weights: np.ndarray, sources: Sequence[str], targets: Sequence[str]
) -> np.ndarray:
    """Finds pairs whose source looks like a target and whose target looks like a source.

    Both must, by `EVIDENCE`: a name, a number or a quotation on one side is no swap.

    Returns:
        Boolean [pairs].
    """
    chunks = [
        (_evidence(weights, sources[start:end]) < -EVIDENCE)
        & (_evidence(weights, targets[start:end]) > EVIDENCE)
        for start in range(0, len(sources), CHUNK_PAIRS)
        for end in [start + CHUNK_PAIRS]
    ]
    return np.concatenate(chunks) if chunks else np.zeros(0, bool)


def _count(lines: Sequence[str]) -> np.ndarray:
    counts = np.zeros(BUCKETS)
    for start in range(0, len(lines), CHUNK_PAIRS):
        buckets, _ = _ngrams(lines[start : start + CHUNK_PAIRS])
        counts += np.bincount(buckets, minlength=BUCKETS)
    return counts


def _evidence(weights: np.ndarray, lines: Sequence[str]) -> np.ndarray:
    """The sum of the weights of each line's n-grams, [lines]; positive speaks for source."""
    buckets, starts = _ngrams(lines)
    return np.add.reduceat(weights[buckets], starts)


def _ngrams(lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """The buckets of all n-grams of some lines in a row, and where each line's begin."""
    # What follows the last byte of a line are blanks: no n-gram has text of two lines.
    blanks = " " * (ORDER - 1)
    encoded = [f"{blanks}{line} ".encode() for line in lines]
    lengths = np.array([len(line) for line in encoded])
    joined = b"".join([*encoded, blanks.encode()])
    text = np.frombuffer(joined, np.uint8).astype(np.uint32)
    code = np.zeros(len(text) - ORDER + 1, np.uint32)
    for offset in range(ORDER):
        code = (code << np.uint32(8)) | text[offset : offset + len(code)]
    # Knuth's multiplicative hash: its upper 16 bits are a bucket.
    buckets = (code * np.uint32(2654435761)) >> np.uint32(16)
    return buckets, np.cumsum(lengths) - lengths
