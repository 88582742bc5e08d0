"""Detection of swapped languages by n-gram statistics, without a language identifier.

The frequencies of byte 4-grams on each side are learned from the text itself (Cavnar and
Trenkle 1994 identify languages by such profiles). The evidence of a line is its log-likelihood
ratio between the two sides, in nats. This works if most pairs are the right way round.
"""

from collections.abc import Sequence

import numpy as np

ORDER = 4  # bytes: two to four letters
BUCKETS = 2**16
PROFILE_PAIRS = 50_000
CHUNK_PAIRS = 10_000
MAX_WEIGHT = 4.0  # nats, so that no single n-gram decides
EVIDENCE = 10.0  # nats by which each side of a swapped pair must look like the other side


def learn_direction(sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """Learns the weight of each n-gram, log p(n-gram | source side) / p(n-gram | target side).

    Returns:
        float64 [BUCKETS]; an n-gram's bucket is its hash.
    """
    every = max(1, len(sources) // PROFILE_PAIRS)
    counts = [_count(lines[::every]) for lines in (sources, targets)]
    # Add-one smoothing, so that no n-gram is impossible.
    source, target = ((count + 1) / (count.sum() + BUCKETS) for count in counts)
    return np.clip(np.log(source / target), -MAX_WEIGHT, MAX_WEIGHT)


def swapped_pairs(
    weights: np.ndarray, sources: Sequence[str], targets: Sequence[str]
) -> np.ndarray:
    """Finds pairs whose source looks like a target and whose target looks like a source.

    Both must exceed `EVIDENCE`: a foreign name or quotation on one side is no swap.

    Returns:
        bool [pairs].
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
    """Returns the summed n-gram weights of each line, [lines]; positive means source-like."""
    buckets, starts = _ngrams(lines)
    return np.add.reduceat(weights[buckets], starts)


def _ngrams(lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the buckets of the lines' n-grams, concatenated, and the start of each line."""
    # Spaces between lines: no n-gram has text from two of them.
    padding = " " * (ORDER - 1)
    encoded = [f"{padding}{line} ".encode() for line in lines]
    lengths = np.array([len(line) for line in encoded])
    joined = b"".join([*encoded, padding.encode()])
    text = np.frombuffer(joined, np.uint8).astype(np.uint32)
    code = np.zeros(len(text) - ORDER + 1, np.uint32)
    for offset in range(ORDER):
        code = (code << np.uint32(8)) | text[offset : offset + len(code)]
    # The bucket is the upper 16 bits of Knuth's multiplicative hash.
    buckets = (code * np.uint32(2654435761)) >> np.uint32(16)
    return buckets, np.cumsum(lengths) - lengths
