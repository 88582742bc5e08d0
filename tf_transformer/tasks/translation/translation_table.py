"""Translation table of tokens: IBM Model 1 (Brown et al. 1993), trained by EM.

V vocabulary, P pairs of a chunk, S and T their longest source and target, K translations of a
token, L distinct links. A link joins a target token and a source token of the same pair. EOS of
the source serves as the model's empty word; EOS of the target has no links.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.encoded import EncodedCorpus

ITERATIONS = 5
CHUNK_LINKS = 2**22  # links per chunk, which bounds the memory besides that of distinct links


@dataclass(frozen=True)
class Pairs:
    """A subset of the pairs of a corpus."""

    corpus: EncodedCorpus
    rows: np.ndarray  # int [N]

    @property
    def num_links(self) -> int:
        """Number of links, including links to the empty word."""
        targets = self.corpus.target_lengths[self.rows].astype(np.int64) - 1
        return int(np.sum(self.corpus.source_lengths[self.rows] * targets))


class Links(NamedTuple):
    """Distinct links, sorted by source and target token, and p(target | source)."""

    sources: np.ndarray  # int64 [L]
    targets: np.ndarray  # int64 [L]
    probabilities: np.ndarray  # float64 [L]


def model1(
    pairs: Pairs, vocab_size: int, progress: Callable[[str, int], None] | None = None
) -> Links:
    """Estimates p(target token | source token) from pairs by `ITERATIONS` of EM.

    Args:
        pairs: the pairs to learn from.
        vocab_size: V.
        progress: called with the name of the current step and the number of pairs done.
    """
    chunks = _chunks(pairs)

    def links(step: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        done = 0
        for chunk in chunks:
            yield _links(pairs.corpus, chunk, vocab_size)
            done += len(chunk)
            if progress:
                progress(step, done)

    keys = np.empty(0, np.int64)
    for chunk_keys, real in links("collecting links"):
        keys = np.union1d(keys, chunk_keys[real])
    sources = keys // vocab_size
    probabilities = np.ones(len(keys))
    for iteration in range(1, ITERATIONS + 1):
        counts = np.zeros(len(keys))
        for chunk_keys, real in links(f"iteration {iteration} of {ITERATIONS}"):
            _add_expected(counts, keys, probabilities, chunk_keys, real)
        totals = np.bincount(sources, counts, vocab_size)
        probabilities = counts / totals[sources]
    return Links(sources, keys % vocab_size, probabilities)


def most_probable(links: Links, vocab_size: int, number: int) -> np.ndarray:
    """Returns the `number` (K) best translations of each token, best first: int32 [V, K].

    Ties go to the lower id; rows with fewer translations are padded with PAD.
    """
    order = np.lexsort((links.targets, -links.probabilities, links.sources))
    sources, targets = links.sources[order], links.targets[order]
    ranks = np.arange(len(sources)) - np.searchsorted(sources, sources)
    best = ranks < number
    table = np.full((vocab_size, number), PAD_ID, np.int32)
    table[sources[best], ranks[best]] = targets[best]
    return table


def target_counts(pairs: Pairs, vocab_size: int) -> np.ndarray:
    """Counts the occurrences of each token in the targets of the pairs: int64 [V]."""
    counts, corpus = np.zeros(vocab_size, np.int64), pairs.corpus
    for chunk in _chunks(pairs):
        target = corpus.padded("target", chunk, corpus.target_lengths[chunk].max())
        counts += np.bincount(target[target != PAD_ID], minlength=vocab_size)
    return counts


def _chunks(pairs: Pairs) -> list[np.ndarray]:
    """Splits rows, sorted by length, into chunks of at most `CHUNK_LINKS` links or one pair.

    Padding counts.
    """
    sources, targets = pairs.corpus.source_lengths, pairs.corpus.target_lengths
    rows, chunks, start = pairs.rows, [], 0
    rows = rows[np.lexsort((rows, targets[rows], sources[rows]))]
    while start < len(rows):
        # Sources are sorted by length: the last source of a chunk is its longest.
        longest = np.maximum.accumulate(targets[rows[start : start + CHUNK_LINKS]])
        counts = np.arange(1, len(longest) + 1)
        sizes = counts * longest.astype(np.int64) * sources[rows[start : start + len(longest)]]
        size = max(1, int(np.searchsorted(sizes, CHUNK_LINKS, side="right")))
        chunks.append(rows[start : start + size])
        start += size
    return chunks


def _links(
    corpus: EncodedCorpus, chunk: np.ndarray, vocab_size: int
) -> tuple[np.ndarray, np.ndarray]:
    """Returns links as keys, source * V + target, and a mask of real links: [P, T, S] each."""
    source = corpus.padded("source", chunk, corpus.source_lengths[chunk].max())
    target = corpus.padded("target", chunk, corpus.target_lengths[chunk].max())
    keys = source[:, np.newaxis].astype(np.int64) * vocab_size + target[..., np.newaxis]
    word = (target != PAD_ID) & (target != EOS_ID)
    return keys, (source != PAD_ID)[:, np.newaxis] & word[..., np.newaxis]


def _add_expected(
    counts: np.ndarray,
    keys: np.ndarray,
    probabilities: np.ndarray,
    chunk_keys: np.ndarray,
    real: np.ndarray,
) -> None:
    """Adds the expected counts of a chunk's links to `counts`, the counts of all `keys`.

    Each target token distributes a count of 1 over the source tokens of its pair.
    """
    unique, inverse = np.unique(chunk_keys[real], return_inverse=True)
    indices = np.searchsorted(keys, unique)
    shares = np.zeros(chunk_keys.shape)
    shares[real] = probabilities[indices][inverse]
    sums = shares.sum(axis=-1, keepdims=True)
    np.divide(shares, sums, out=shares, where=sums > 0)
    counts[indices] += np.bincount(inverse, shares[real], len(unique))
