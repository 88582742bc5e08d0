"""A mix of corpora: draws the pairs of each epoch from several, in given proportions."""

from collections.abc import Sequence

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.config.settings import mix_weights


class Mixture:
    """Draws the pairs of each epoch from several corpora, in the proportions of a mix.

    An epoch has about as many pairs as all corpora together. The pairs of a corpus form an
    endless sequence of permutations, from which each epoch takes the next segment: no pair
    recurs before all others of its corpus and length have been seen. `sizes` are the pairs of
    each corpus; see `mix_weights`. Raises UserError if a corpus is empty, or `mix` does not
    fit.
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
        self.shares = weights / weights.sum()  # of each corpus in an epoch
        # How often an epoch uses each pair of a corpus, on average.
        self.times = self.shares * sum(sizes) / np.array(sizes)

    def draw(self, pairs: np.ndarray, length: int, epoch: int) -> np.ndarray:
        """Selects the pairs of an epoch, from 0, out of those of the bucket of a length.

        Every epoch gets the same number, with at least 1 of each corpus in `pairs`, which are
        ascending.
        """
        corpora = np.split(pairs, np.searchsorted(pairs, self._starts))
        segments = [
            _segment(corpus, max(1, round(len(corpus) * times)), epoch, [self._seed, length, i])
            for i, (corpus, times) in enumerate(zip(corpora, self.times, strict=True))
            if len(corpus)
        ]
        return np.concatenate(segments)

    def summary(self, names: Sequence[str]) -> str:
        """Describes the mix in a line."""
        parts = (
            f"{name} {share:.1%}, each pair {times:.3g} times an epoch"
            for name, share, times in zip(names, self.shares, self.times, strict=True)
        )
        return f"mix: {'; '.join(parts)}"


def _segment(pairs: np.ndarray, count: int, epoch: int, seed: list[int]) -> np.ndarray:
    """Returns `count` elements of the endless permutations, starting at epoch * count."""
    first, start = divmod(epoch * count, len(pairs))
    last = (epoch * count + count - 1) // len(pairs)
    permutations = [
        np.random.default_rng([*seed, index]).permutation(pairs)
        for index in range(first, last + 1)
    ]
    return np.concatenate(permutations)[start : start + count]
