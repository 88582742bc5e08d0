"""Plans of batches: which pairs each holds, limited in tokens, in few shapes (paper 5.1)."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.config.settings import mix_weights
from tf_transformer.data.augmentation import Augmentation, Examples
from tf_transformer.data.text import SIDES


def bucket_boundaries(max_length: int) -> list[int]:
    """Returns the lengths to pad to: multiples of 4 from 8 to `max_length` rounded up.

    Steps are 4, and from 36 on at least an eighth of the length: few shapes, little padding.
    """
    last = _round_up(max_length)
    boundaries, length = [], 8
    while length < last:
        boundaries.append(length)
        length += _round_up(max(4, length / 8))
    return [*boundaries, last]


def fitted_boundaries(lengths: np.ndarray, most: int) -> list[int]:
    """Returns the lengths to pad to, multiples of 4 from 8, that leave the least padding.

    At most `most`, and the fewest that need at most 1 % more positions than `most` do.
    """
    # Lengths to choose from [E], and the pairs that each would hold if all were chosen.
    ends, counts = np.unique(np.maximum(-(-lengths // 4) * 4, 8), return_counts=True)
    below = counts.cumsum()  # pairs that are no longer
    # The fewest positions [ends] of the pairs up to each end, if it is the last of 1, 2, ...
    fewest, shorter = [ends * below], []
    for _ in range(most - 1):
        # The pairs between the last boundary but one and the last are padded to the last.
        each = fewest[-1][:, None] + ends * (below - below[:, None])  # [last but one, last]
        # It must be shorter than the last, or the same, which adds no boundary.
        each = np.where(np.tri(len(ends), k=-1, dtype=bool), np.inf, each)
        shorter.append(each.argmin(axis=0))
        fewest.append(each.min(axis=0))
    count = next(n for n, each in enumerate(fewest) if each[-1] <= 1.01 * fewest[-1][-1])
    chosen = [len(ends) - 1]  # the longest; then back, from each to the best one before it
    for choice in reversed(shorter[:count]):
        chosen.append(choice[chosen[-1]])
    return sorted({*ends[chosen].tolist()})


def _round_up(length: float) -> int:
    return 4 * int(np.ceil(length / 4))


@dataclass(frozen=True)
class Batch:
    """Pairs of a batch of shape [num_rows, length].

    `indices` are those of pairs in the corpus [P], or of those to join in each row [P, N], -1
    for none; if there are fewer than `num_rows`, PAD fills the rest.
    """

    indices: np.ndarray
    num_rows: int
    length: int

    def share(self, replica: int, num_replicas: int) -> "Batch":
        """Returns a replica's share: every `num_replicas`-th pair, in one shape for all."""
        num_rows = -(-self.num_rows // num_replicas)
        return Batch(self.indices[replica::num_replicas], num_rows, self.length)


class _Bucket(NamedTuple):
    """Pairs of similar length, by their indices, and the shape of a batch of them."""

    pairs: np.ndarray
    num_rows: int
    length: int


class _Epoch(NamedTuple):
    """Batches of an epoch; with `examples`, they hold the indices of these."""

    number: int
    batches: list[Batch]
    examples: Examples | None


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
        # As the corpora stand in a row, each has a range of the ascending indices.
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
    """Returns `count` elements of the endless permutations, starting at epoch * count.

    Of 3 pairs with permutations cab, bca and so on, `count` 2 gives ca, bb, ca.
    """
    first, start = divmod(epoch * count, len(pairs))
    last = (epoch * count + count - 1) // len(pairs)
    permutations = [
        np.random.default_rng([*seed, index]).permutation(pairs)
        for index in range(first, last + 1)
    ]
    return np.concatenate(permutations)[start : start + count]


class BatchPlan:
    """The pairs in the batch of each step, as a pure function of seed and step.

    A pair belongs to the bucket of its longer side. A batch of the bucket of length b has shape
    [batch_tokens // b, b] on both sides: at most `batch_tokens` positions each. Pairs left over
    in a bucket move to the next longer one, so only one batch of an epoch is not full. An epoch
    sees each pair once, unless there is a mixture. With an augmentation each pair begins an
    example; later epochs leave out or repeat a few batches to be as long. `most_shapes`, if
    given, limits the buckets; their lengths are then fitted to those of the first epoch.

    The lengths, int [pairs], count EOS; with an augmentation they are those of all forms.
    Without target lengths there is only a source side. Raises UserError if a pair does not fit
    into `batch_tokens`.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray | None = None,
        *,
        batch_tokens: int,
        max_length: int,
        seed: int,
        mixture: Mixture | None = None,
        augmentation: Augmentation | None = None,
        most_shapes: int | None = None,
    ):
        sides = [source_lengths] if target_lengths is None else [source_lengths, target_lengths]
        self._lengths = np.stack(sides)  # [sides, pairs of the encoding]
        self._batch_tokens, self._seed = batch_tokens, seed
        self._boundaries = np.array(bucket_boundaries(max_length))
        self._mixture, self._augmentation = mixture, augmentation
        longer = self._lengths.max(axis=0)
        self._require_room(longer.max())
        # Pairs in other forms are in no bucket: the augmentation chooses them.
        longer = longer[: augmentation.num_pairs if augmentation else None]
        self._buckets = self._fill(longer)

        largest = self._boundaries[self._boundaries <= batch_tokens][-1]
        limits = np.full([len(sides), 1], min(max_length, largest))
        # The first epoch is planned now, since shapes, steps and tokens follow from it.
        first = self._plan_epoch(0, limits)
        planned = first.examples.lengths if first.examples else self._lengths
        if most_shapes:
            drawn = np.concatenate([batch.indices for batch in first.batches])
            # A mixture may draw the longest pair in a later epoch.
            fitted = np.append(planned.max(axis=0)[drawn], planned.max())
            self._boundaries = np.array(fitted_boundaries(fitted, most_shapes))
            self._buckets = self._fill(longer)
            first = self._plan_epoch(0, limits)
        self._epoch = first
        # Later epochs join pairs up to here as well: the first has the longest batch of all.
        self._limits = np.maximum(self._lengths.max(axis=1), planned.max(axis=1))[:, np.newaxis]
        self.longest = self._limits[:, 0].tolist()  # length of the longest example on each side
        self.steps_per_epoch = len(first.batches)  # in every epoch
        shapes = {(batch.num_rows, batch.length) for batch in first.batches}
        self.shapes = sorted(shapes, key=lambda shape: shape[1])  # shortest first
        self._positions = sum(batch.num_rows * batch.length for batch in first.batches)
        self._tokens = {
            side: sum(int(lengths[batch.indices].sum()) for batch in first.batches)
            for side, lengths in zip(SIDES, planned, strict=False)
        }

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step, counted from 0 over all epochs."""
        number, index = divmod(step, self.steps_per_epoch)
        # Read and replaced as one tuple: threads may ask for different epochs at once.
        epoch = self._epoch
        if epoch.number != number:
            epoch = self._plan_epoch(number, self._limits, self.steps_per_epoch)
            self._epoch = epoch
        batch = epoch.batches[index]
        if epoch.examples is None:
            return batch
        return replace(batch, indices=epoch.examples.indices(batch.indices))

    def tags(self, indices: np.ndarray) -> np.ndarray | int:
        """Returns how many ids of a tag joined sources leave out; see `Augmentation.tags`."""
        return self._augmentation.tags(indices) if self._augmentation else 0

    def _require_room(self, length: int) -> None:
        """Raises UserError if a batch has no room for a pair whose longer side is `length`."""
        padded = self._boundaries[np.searchsorted(self._boundaries, length)]
        if self._batch_tokens < padded:
            raise UserError(
                f"`batch_tokens` must be at least {padded}, the length that the longest "
                f"sentence pair is padded to. Received: batch_tokens={self._batch_tokens}."
            )

    def _fill(self, lengths: np.ndarray) -> list[_Bucket]:
        """Sorts pairs of these lengths, or examples, into buckets, shortest first."""
        bucket_of = np.searchsorted(self._boundaries, lengths)
        order = np.argsort(bucket_of, kind="stable")  # pairs by bucket, ascending in each
        numbers = np.arange(len(self._boundaries))
        ends = np.searchsorted(bucket_of[order], numbers, side="right")
        parts = np.split(order, ends[:-1])  # one for each boundary, maybe empty
        return [
            _Bucket(pairs, self._batch_tokens // length, length)
            for pairs, length in zip(parts, self._boundaries.tolist(), strict=True)
            if len(pairs)
        ]

    def _plan_epoch(
        self, number: int, limits: np.ndarray, num_batches: int | None = None
    ) -> _Epoch:
        """Draws an epoch; batches are left out or repeated to have `num_batches`, if given.

        `limits` are as in `Augmentation.draw`.
        """
        # A generator for each epoch, so that any of them can be planned alone.
        rng = np.random.default_rng([self._seed, number])
        buckets, examples = self._buckets, None
        if mixture := self._mixture:
            buckets = [
                b._replace(pairs=mixture.draw(b.pairs, b.length, number)) for b in buckets
            ]
        if self._augmentation:
            # Joining changes lengths, so examples are sorted into buckets anew.
            pairs = np.sort(np.concatenate([bucket.pairs for bucket in buckets]))
            examples = self._augmentation.draw(pairs, self._lengths, limits, rng)
            buckets = self._fill(examples.lengths.max(axis=0))
        batches: list[Batch] = []
        left = np.empty(0, np.int64)  # pairs that filled no batch of the bucket before
        for pairs, num_rows, length in buckets:
            pairs = np.concatenate([left, rng.permutation(pairs)])
            full = len(pairs) // num_rows * num_rows
            whole = pairs[:full].reshape(-1, num_rows)  # [batches, rows]
            batches += [Batch(indices, num_rows, length) for indices in whole]
            left = pairs[full:]
        if len(left):
            batches.append(Batch(left, num_rows, length))
        # `resize` cuts the end of the order, or goes on with its beginning.
        order = np.resize(rng.permutation(len(batches)), num_batches or len(batches))
        return _Epoch(number, [batches[index] for index in order], examples)

    def padding_waste(self) -> float:
        """Returns the fraction of all positions, on both sides, that are PAD."""
        return 1 - sum(self._tokens.values()) / (len(self._tokens) * self._positions)

    def summary(self) -> str:
        """Describes shapes, steps and padding in three lines."""
        means = " and ".join(
            f"{count / self.steps_per_epoch:,.0f} {name}"
            for name, count in self._tokens.items()
        )
        shapes = ", ".join(f"{rows}x{length}" for rows, length in self.shapes)
        return (
            f"{len(self.shapes)} batch shapes (rows x length): {shapes}\n"
            f"{self.steps_per_epoch:,} steps an epoch, on average {means} tokens a batch\n"
            f"padding: {self.padding_waste():.1%} of all positions"
        )
