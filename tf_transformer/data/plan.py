"""Plans of batches: which pairs each holds, limited in tokens, in few shapes (paper 5.1)."""

import functools
from dataclasses import dataclass, replace

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.data.augmentation import Augmentation, Examples
from tf_transformer.data.mixture import Mixture
from tf_transformer.data.text import SIDES

_Bucket = tuple[np.ndarray, int, int]  # pairs, rows of a batch, and the length to pad them to


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


def _round_up(length: float) -> int:
    return 4 * int(np.ceil(length / 4))


@dataclass(frozen=True)
class Batch:
    """Pairs of a batch of shape [num_rows, length].

    `rows` are indices into the corpus, or [pairs, N] of those to join, -1 for none; if there
    are fewer than `num_rows`, PAD fills the rest.
    """

    rows: np.ndarray
    num_rows: int
    length: int

    def share(self, replica: int, num_replicas: int) -> "Batch":
        """Returns a replica's share: every `num_replicas`-th pair, in one shape for all."""
        num_rows = -(-self.num_rows // num_replicas)
        return Batch(self.rows[replica::num_replicas], num_rows, self.length)


def _fill_buckets(lengths: np.ndarray, batch_tokens: int, max_length: int) -> list[_Bucket]:
    """Sorts pairs into buckets, shortest first; UserError if one does not fit."""
    boundaries = np.array(bucket_boundaries(max_length))
    bucket = np.searchsorted(boundaries, lengths)
    longest = boundaries[bucket.max()]
    if batch_tokens < longest:
        raise UserError(
            f"`batch_tokens` must be at least {longest}, the length that the longest "
            f"sentence pair is padded to. Received: batch_tokens={batch_tokens}. Use "
            f"--set training.batch_tokens={longest} or more."
        )
    order = np.argsort(bucket, kind="stable")
    ends = np.searchsorted(bucket[order], np.arange(len(boundaries)), side="right")
    return [
        (pairs, batch_tokens // int(length), int(length))
        for pairs, length in zip(np.split(order, ends[:-1]), boundaries, strict=True)
        if len(pairs)
    ]


class BatchPlan:
    """The pairs in the batch of each step, as a pure function of seed and step.

    A pair belongs to the bucket of its longer side. A batch of the bucket of length b has
    shape [batch_tokens // b, b] on both sides: at most `batch_tokens` positions each. Pairs
    left over in a bucket move to the next longer one, so only one batch of an epoch is not
    full. An epoch sees each pair once, unless there is a mixture. With an augmentation each
    pair begins an example; later epochs leave out or repeat a few batches to be as long.

    Args:
        source_lengths, target_lengths: int [pairs], in tokens with EOS; without target
            lengths, there is only a source side. With an augmentation, those of all forms.
        batch_tokens: limit on the positions of either side of a batch.
        max_length: limit on the lengths.
        seed: determines the order of pairs and batches, which differs from epoch to epoch.
        mixture: draws the pairs of each epoch; without one, an epoch has all of them.
        augmentation: joins pairs and changes their form.

    Attributes:
        steps_per_epoch: the same in every epoch.
        longest: length of the longest example on each side.
        shapes: (rows, length) of all batches, shortest first.

    Raises:
        UserError: if a pair does not fit into `batch_tokens`.
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
    ):
        sides = [source_lengths, *([] if target_lengths is None else [target_lengths])]
        self._lengths = np.stack(sides)  # [sides, rows]
        self._fill = functools.partial(
            _fill_buckets, batch_tokens=batch_tokens, max_length=max_length
        )
        lengths = self._lengths.max(axis=0)
        self._buckets = self._fill(lengths)
        if augmentation:
            self._buckets = self._fill(lengths[: augmentation.pairs])
        self._seed, self._mixture, self._augmentation = seed, mixture, augmentation
        fitting = [b for b in bucket_boundaries(max_length) if b <= batch_tokens]
        self._limits = np.full([len(sides), 1], min(max_length, fitting[-1]))
        self.steps_per_epoch = 0  # as many as there are
        self._current = (0, *self._plan_epoch(0))
        _, batches, examples = self._current
        planned = examples.lengths if examples else self._lengths
        # Later epochs join pairs up to here as well: the first has the longest batch of all.
        self._limits = np.maximum(self._lengths.max(axis=1), planned.max(axis=1))[:, np.newaxis]
        self.longest = self._limits[:, 0].tolist()
        self.steps_per_epoch = len(batches)
        self.shapes = sorted({(b.num_rows, b.length) for b in batches}, key=lambda s: s[1])
        self._tokens = {
            name: sum(int(lengths[batch.rows].sum()) for batch in batches)
            for name, lengths in zip(SIDES, planned, strict=False)
        }
        self._positions = sum(batch.num_rows * batch.length for batch in batches)

    def batch(self, step: int) -> Batch:
        """Returns the batch of a step, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        # Read and replaced as one tuple: threads may ask for different epochs at once.
        current = self._current
        if current[0] != epoch:
            current = self._current = (epoch, *self._plan_epoch(epoch))
        _, batches, examples = current
        batch = batches[index]
        return replace(batch, rows=examples.rows(batch.rows)) if examples else batch

    def tags(self, rows: np.ndarray) -> np.ndarray | int:
        """Returns how many ids of a tag joined sources leave out; see `Augmentation.tags`."""
        return self._augmentation.tags(rows) if self._augmentation else 0

    def _plan_epoch(self, epoch: int) -> tuple[list[Batch], Examples | None]:
        """Returns batches; with an augmentation, their rows are indices into the examples."""
        rng = np.random.default_rng([self._seed, epoch])
        buckets, examples = self._buckets, None
        if self._mixture:
            buckets = [
                (self._mixture.rows(pairs, length, epoch), rows, length)
                for pairs, rows, length in buckets
            ]
        if self._augmentation:
            pairs = np.sort(np.concatenate([bucket[0] for bucket in buckets]))
            examples = self._augmentation.draw(pairs, self._lengths, self._limits, rng)
            buckets = self._fill(examples.lengths.max(axis=0))
        batches: list[Batch] = []
        left = np.empty(0, np.int64)
        for pairs, num_rows, length in buckets:
            pairs = np.concatenate([left, rng.permutation(pairs)])
            full = len(pairs) // num_rows * num_rows
            rows_of_batches = pairs[:full].reshape(-1, num_rows)
            batches += [Batch(rows, num_rows, length) for rows in rows_of_batches]
            left = pairs[full:]
        if len(left):
            batches.append(Batch(left, num_rows, length))
        order = rng.permutation(len(batches))
        steps = self.steps_per_epoch or len(batches)
        return [batches[index] for index in np.resize(order, steps)], examples

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
