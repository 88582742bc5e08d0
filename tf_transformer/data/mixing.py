"""Corpora mixed by weights: the pairs of each corpus in each epoch, as a pure function."""

from collections.abc import Sequence

import numpy as np

from tf_transformer.config.data import mix_weights
from tf_transformer.errors import UserError


class Mixture:
    """Draws the pairs of an epoch so that each corpus has the share that a mix gives it.

    An epoch has about as many pairs as all corpora together. The pairs of a corpus form an
    endless sequence of permutations, from which each epoch takes the next segment: no pair
    recurs before all others of its corpus and length have been seen.

    Args:
        sizes: number of pairs of each corpus, in the order of their indices.
        mix: see `config.data.mix_weights`.
        seed: determines the permutations.

    Attributes:
        shares: share of each corpus in an epoch; they sum to 1.
        times: for each corpus, how often an epoch has each of its pairs, on average.

    Raises:
        UserError: if a corpus is empty, or as `mix_weights` does.
    """

    def __init__(self, sizes: Sequence[int], mix: str, seed: int) -> None:
        if 0 in sizes:
            raise UserError(
                f"Every corpus of a mix must have a usable pair. Received: {list(sizes)}. "
                "Leave the empty one out, or check data.max_length and data.max_ratio."
            )
        self._starts = np.cumsum(sizes)[:-1]
        self._seed = seed
        weights = np.array(mix_weights(mix, sizes))
        self.shares = weights / weights.sum()
        self.times = self.shares * sum(sizes) / np.array(sizes)

    def rows(self, pairs: np.ndarray, length: int, epoch: int) -> np.ndarray:
        """Returns an epoch's selection from pairs of similar length.

        Their number is the same in every epoch, and at least 1 for each corpus in `pairs`.

        Args:
            pairs: indices in ascending order.
            length: length of their bucket.
            epoch: counted from 0.
        """
        corpora = np.split(pairs, np.searchsorted(pairs, self._starts))
        drawn = [
            _segment(corpus, max(1, round(len(corpus) * times)), epoch, [self._seed, length, i])
            for i, (corpus, times) in enumerate(zip(corpora, self.times, strict=True))
            if len(corpus)
        ]
        return np.concatenate(drawn)

    def summary(self, names: Sequence[str]) -> str:
        """Describes the mix in a line."""
        parts = (
            f"{name} {share:.1%}, each pair {times:.3g} times an epoch"
            for name, share, times in zip(names, self.shares, self.times, strict=True)
        )
        return f"mix: {'; '.join(parts)}"


def _segment(pairs: np.ndarray, count: int, epoch: int, seed: list[int]) -> np.ndarray:
    """Returns `count` elements of the endless permutations, from epoch * count on."""
    first, start = divmod(epoch * count, len(pairs))
    last = (epoch * count + count - 1) // len(pairs)
    permutations = [
        np.random.default_rng([*seed, index]).permutation(pairs)
        for index in range(first, last + 1)
    ]
    return np.concatenate(permutations)[start : start + count]
