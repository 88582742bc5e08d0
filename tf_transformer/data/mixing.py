"""Corpora mixed by weights: the pairs of each corpus in each epoch, as a pure function."""

from collections.abc import Sequence

import numpy as np

from tf_transformer.config.data import mix_weights
from tf_transformer.errors import UserError


class Mixture:
    """Draws the pairs of an epoch so that corpora have the shares that a mix gives them.

    An epoch has about as many pairs as all corpora together. Those of a corpus come in an
    endless row of permutations, of which each epoch takes the next part: no pair comes again
    before all others of its corpus and length have come.

    Args:
        sizes: number of pairs of each corpus; they stand one after the other.
        mix: see `config.data.mix_weights`.
        seed: determines the permutations.

    Attributes:
        shares: of each corpus in all pairs; they sum to 1.
        times: how often an epoch has each pair, by corpus.

    Raises:
        UserError: if a corpus is empty, or as `mix_weights` does.
    """

    def __init__(self, sizes: Sequence[int], mix: str, seed: int) -> None:
        if 0 in sizes:
            raise UserError(
                f"Corpora of a mix must have a usable pair each. Received: {list(sizes)}. "
                "Leave the empty one out, or look at data.max_length and data.max_ratio."
            )
        self._starts = np.cumsum(sizes)[:-1]
        self._seed = seed
        weights = np.array(mix_weights(mix, sizes))
        self.shares = weights / weights.sum()
        self.times = self.shares * sum(sizes) / np.array(sizes)

    def rows(self, pairs: np.ndarray, length: int, epoch: int) -> np.ndarray:
        """Returns the pairs that an epoch takes of those of similar length.

        Their number is the same in every epoch, and of each corpus in `pairs` at least 1.

        Args:
            pairs: indices in rising order.
            length: that of their bucket.
            epoch: counted from 0.
        """
        parts = np.split(pairs, np.searchsorted(pairs, self._starts))
        drawn = [
            _part_of_row(part, max(1, round(len(part) * times)), epoch, [self._seed, length, i])
            for i, (part, times) in enumerate(zip(parts, self.times, strict=True))
            if len(part)
        ]
        return np.concatenate(drawn)

    def summary(self, names: Sequence[str]) -> str:
        """Describes the mix in a line."""
        parts = (
            f"{name} {share:.1%}, each pair {times:.3g} times an epoch"
            for name, share, times in zip(names, self.shares, self.times, strict=True)
        )
        return f"mix: {'; '.join(parts)}"


def _part_of_row(pairs: np.ndarray, count: int, epoch: int, seed: list[int]) -> np.ndarray:
    """Returns elements epoch * count and on, `count` of them, of the row of permutations."""
    first, start = divmod(epoch * count, len(pairs))
    last = (epoch * count + count - 1) // len(pairs)
    permutations = [
        np.random.default_rng([*seed, number]).permutation(pairs)
        for number in range(first, last + 1)
    ]
    return np.concatenate(permutations)[start : start + count]
