"""Translation table of tokens: IBM Model 1 (Brown et al. 1993), by expectation maximisation.

V vocabulary, P pairs of a chunk, S and T their longest source and target, K translations of a
token. A link is a target token with a source token of its pair. EOS, which ends every source,
is the empty word of the model; that of the target is nobody's translation.
"""

from collections.abc import Callable, Iterator
from typing import Literal, NamedTuple, Protocol

import numpy as np

from tf_transformer.config import EOS_ID, PAD_ID

ITERATIONS = 5
CHUNK_LINKS = 2**22  # at once, which bounds the memory beside that of the distinct links


class Corpus(Protocol):
    """Protocol of a tokenised corpus, such as `data.encoded.EncodedCorpus`."""

    source_lengths: np.ndarray  # int32 [pairs], EOS counted
    target_lengths: np.ndarray

    def padded(
        self, side: Literal["source", "target"], rows: np.ndarray, length: int
    ) -> np.ndarray:
        """The sentences `rows` of a side, int32 [len(rows), length]."""


class Links(NamedTuple):
    """The distinct links in the order of source and target token, and p(target | source)."""

    sources: np.ndarray  # int64 [L]
    targets: np.ndarray  # int64 [L]
    probabilities: np.ndarray  # float64 [L]


def model1(
    corpus: Corpus,
    rows: np.ndarray,
    vocab_size: int,
    progress: Callable[[str, int], None] | None = None,
) -> Links:
    """Estimates p(target token | source token) from the pairs `rows` by `ITERATIONS` of EM.

    Args:
        corpus: source and target ids.
        rows: int [N], which of its pairs to learn from.
        vocab_size: V.
        progress: called with what is being done and the number of pairs done so far.
    """
    chunks = _chunks(corpus.source_lengths, corpus.target_lengths, rows)

    def links(text: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        done = 0
        for chunk in chunks:
            yield _links(corpus, chunk, vocab_size)
            done += len(chunk)
            if progress:
                progress(text, done)

    keys = np.empty(0, np.int64)
    for own, real in links("collecting links"):
        keys = np.union1d(keys, own[real])
    sources = keys // vocab_size
    probabilities = np.ones(len(keys))
    for iteration in range(1, ITERATIONS + 1):
        counts = np.zeros(len(keys))
        for own, real in links(f"iteration {iteration} of {ITERATIONS}"):
            _add_expected(counts, keys, probabilities, own, real)
        totals = np.bincount(sources, counts, vocab_size)
        probabilities = counts / totals[sources]
    return Links(sources, keys % vocab_size, probabilities)


def most_probable(links: Links, vocab_size: int, number: int) -> np.ndarray:
    """Returns the K = `number` best translations of each token, in order: int32 [V, K].

    Ties go to the lower id; PAD stands where there are fewer.
    """
    order = np.lexsort((links.targets, -links.probabilities, links.sources))
    sources, targets = links.sources[order], links.targets[order]
    ranks = np.arange(len(sources)) - np.searchsorted(sources, sources)
    best = ranks < number
    table = np.full((vocab_size, number), PAD_ID, np.int32)
    table[sources[best], ranks[best]] = targets[best]
    return table


def num_links(corpus: Corpus, rows: np.ndarray) -> int:
    """Counts the links of the pairs, including those of the empty word."""
    targets = corpus.target_lengths[rows].astype(np.int64) - 1
    return int(np.sum(corpus.source_lengths[rows] * targets))


def target_counts(corpus: Corpus, rows: np.ndarray, vocab_size: int) -> np.ndarray:
    """Counts each token in the targets of the pairs: int64 [V]."""
    counts = np.zeros(vocab_size, np.int64)
    for chunk in _chunks(corpus.source_lengths, corpus.target_lengths, rows):
        target = corpus.padded("target", chunk, corpus.target_lengths[chunk].max())
        counts += np.bincount(target[target != PAD_ID], minlength=vocab_size)
    return counts


def _chunks(sources: np.ndarray, targets: np.ndarray, rows: np.ndarray) -> list[np.ndarray]:
    """The rows by length, in parts of at most `CHUNK_LINKS` links with padding, or one pair."""
    rows = rows[np.lexsort((rows, targets[rows], sources[rows]))]
    chunks, start = [], 0
    while start < len(rows):
        # Sources are in order: that of the last row of a part is its longest.
        longest = np.maximum.accumulate(targets[rows[start : start + CHUNK_LINKS]])
        places = np.arange(1, len(longest) + 1)
        sizes = places * longest.astype(np.int64) * sources[rows[start : start + len(longest)]]
        size = max(1, int(np.searchsorted(sizes, CHUNK_LINKS, side="right")))
        chunks.append(rows[start : start + size])
        start += size
    return chunks


def _links(corpus: Corpus, chunk: np.ndarray, vocab_size: int) -> tuple[np.ndarray, np.ndarray]:
    """All links as source * V + target, int64 [P, T, S], and which are no padding."""
    source = corpus.padded("source", chunk, corpus.source_lengths[chunk].max())
    target = corpus.padded("target", chunk, corpus.target_lengths[chunk].max())
    keys = source[:, np.newaxis].astype(np.int64) * vocab_size + target[..., np.newaxis]
    word = (target != PAD_ID) & (target != EOS_ID)
    return keys, (source != PAD_ID)[:, np.newaxis] & word[..., np.newaxis]


def _add_expected(
    counts: np.ndarray,
    keys: np.ndarray,
    probabilities: np.ndarray,
    links: np.ndarray,
    real: np.ndarray,
) -> None:
    """Adds the expected counts of the links [P, T, S] of a chunk.

    Each target token has one count to share among the source tokens of its pair.
    """
    own, inverse = np.unique(links[real], return_inverse=True)
    places = np.searchsorted(keys, own)
    shares = np.zeros(links.shape)
    shares[real] = probabilities[places][inverse]
    sums = shares.sum(axis=-1, keepdims=True)
    np.divide(shares, sums, out=shares, where=sums > 0)
    counts[places] += np.bincount(inverse, shares[real], len(own))
