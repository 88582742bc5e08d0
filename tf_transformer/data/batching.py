"""Token-counted batches on a small fixed set of shapes (paper 5.1)."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, PAD_ID
from tf_transformer.data.encoded import EncodedCorpus
from tf_transformer.errors import UserError

_BATCHES_AHEAD = 2  # made while the one before is trained on


def bucket_boundaries(max_length: int) -> list[int]:
    """Lengths to pad to: multiples of 4 from 8 on, the last is `max_length` rounded up.

    Steps of 4, and of an eighth of the length or more from 36 on: a bounded number of
    shapes, with little padding in each.
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
    """The pairs of a batch of shape [num_rows, length].

    `rows` are indices into the corpus; where they are fewer than `num_rows`, the other rows
    of the batch are all PAD.
    """

    rows: np.ndarray
    num_rows: int
    length: int

    def share(self, replica: int, num_replicas: int) -> "Batch":
        """Every `num_replicas`-th pair from `replica` on; all shares have the same shape."""
        num_rows = -(-self.num_rows // num_replicas)
        return Batch(self.rows[replica::num_replicas], num_rows, self.length)


@dataclass(frozen=True)
class _Bucket:
    """The pairs to be padded to `length`, `num_rows` of them a batch."""

    pairs: np.ndarray
    num_rows: int
    length: int


def _fill_buckets(lengths: np.ndarray, batch_tokens: int, max_length: int) -> list[_Bucket]:
    """The buckets that occur, shortest first; raises UserError where a pair does not fit."""
    if lengths.max() > max_length:
        raise UserError(
            f"Sentences must have at most max_length={max_length} tokens. "
            f"Received: one of {lengths.max()}."
        )
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
        _Bucket(pairs, batch_tokens // int(length), int(length))
        for pairs, length in zip(np.split(order, ends[:-1]), boundaries, strict=True)
        if len(pairs)
    ]


class BatchPlan:
    """Which pairs make up the batch of each step: a pure function of `seed` and step.

    A pair belongs to the bucket of its longer side. A batch of the bucket of length b has
    shape [batch_tokens // b, b] on both sides: at most `batch_tokens` source and
    `batch_tokens` target positions. What is left over in a bucket opens the next longer one,
    so that in an epoch, which sees each pair once, only one batch is not full.

    Args:
        source_lengths, target_lengths: int [pairs], in tokens with EOS; without the second,
            there is a source side only.
        batch_tokens: bound on the positions of either side of a batch.
        max_length: bound on the lengths.
        seed: of the order of pairs and batches, which is another one in each epoch.

    Attributes:
        steps_per_epoch: the same in every epoch.
        shapes: (rows, length) of all batches, shortest first.

    Raises:
        UserError: if a pair is longer than `max_length` or does not fit into `batch_tokens`.
        ValueError: if there are no pairs.
    """

    def __init__(
        self,
        source_lengths: np.ndarray,
        target_lengths: np.ndarray | None = None,
        *,
        batch_tokens: int,
        max_length: int,
        seed: int,
    ):
        sides = {"source": source_lengths, "target": target_lengths}
        sides = {name: lengths for name, lengths in sides.items() if lengths is not None}
        lengths = np.max(list(sides.values()), axis=0)
        if not len(lengths):
            raise ValueError("`source_lengths` must not be empty. Received: no pairs.")
        self._buckets = _fill_buckets(lengths, batch_tokens, max_length)
        self._seed = seed
        self._tokens = {name: int(np.sum(lengths)) for name, lengths in sides.items()}
        self._current = (0, self._plan_epoch(0))
        batches = self._current[1]
        self.steps_per_epoch = len(batches)
        self.shapes = sorted({(b.num_rows, b.length) for b in batches}, key=lambda s: s[1])
        self._positions = sum(batch.num_rows * batch.length for batch in batches)

    def batch(self, step: int) -> Batch:
        """The batch of a step, counted from 0 over all epochs."""
        epoch, index = divmod(step, self.steps_per_epoch)
        # Read and replaced as one: the input thread and others may ask for different epochs.
        current = self._current
        if current[0] != epoch:
            current = self._current = (epoch, self._plan_epoch(epoch))
        return current[1][index]

    def _plan_epoch(self, epoch: int) -> list[Batch]:
        rng = np.random.default_rng([self._seed, epoch])
        batches: list[Batch] = []
        left = np.empty(0, np.int64)
        for bucket in self._buckets:
            pairs = np.concatenate([left, rng.permutation(bucket.pairs)])
            full = len(pairs) // bucket.num_rows * bucket.num_rows
            batches += [
                Batch(rows, bucket.num_rows, bucket.length)
                for rows in pairs[:full].reshape(-1, bucket.num_rows)
            ]
            left = pairs[full:]
        if len(left):
            batches.append(Batch(left, self._buckets[-1].num_rows, self._buckets[-1].length))
        return [batches[index] for index in rng.permutation(len(batches))]

    def padding_waste(self) -> float:
        """The share of all positions, of both sides, that are PAD."""
        return 1 - sum(self._tokens.values()) / (len(self._tokens) * self._positions)

    def summary(self) -> str:
        """A few lines on shapes, steps and padding."""
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


def make_dataset(
    corpus: EncodedCorpus,
    plan: BatchPlan,
    *,
    start_step: int = 0,
    num_steps: int | None = None,
    replicas: Sequence[int] = (0,),
    num_replicas: int = 1,
) -> tf.data.Dataset:
    """The batches of `plan` from `start_step` on, as Keras takes them.

    Args:
        corpus: the pairs.
        plan: made for `corpus`.
        start_step: counted from 0 over all epochs.
        num_steps: None for no end.
        replicas: whose shares to make; each is an element of its own, in this order.
        num_replicas: into how many shares of equal shape each batch is cut.

    Returns:
        `({"source": [B, L], "target": [B, L]}, labels [B, L])`, all int32 and padded with PAD.
        Labels are the target sentence with EOS; "target", the decoder's input, is BOS and the
        labels before their EOS.
    """
    ids = tf.TensorSpec([None, None], tf.int32)
    return dataset_of(
        plan,
        lambda batch: _arrays(corpus, batch),
        ({"source": ids, "target": ids}, ids),
        start_step=start_step,
        num_steps=num_steps,
        replicas=replicas,
        num_replicas=num_replicas,
    )


def dataset_of(
    plan: BatchPlan,
    arrays: Callable[[Batch], Any],
    signature: Any,
    *,
    start_step: int = 0,
    num_steps: int | None = None,
    replicas: Sequence[int] = (0,),
    num_replicas: int = 1,
) -> tf.data.Dataset:
    """What `arrays` makes of the batches of `plan`; the rest is as in `make_dataset`.

    Args:
        plan: of the batches.
        arrays: from a batch, or a share of one, to an element of the dataset.
        signature: the element's tensors, as `tf.TensorSpec`.
        start_step, num_steps, replicas, num_replicas: see `make_dataset`.
    """

    def generate() -> Iterator[Any]:
        step = start_step
        while num_steps is None or step < start_step + num_steps:
            batch = plan.batch(step)
            for replica in replicas:
                yield arrays(batch.share(replica, num_replicas))
            step += 1

    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    elements = tf.data.INFINITE_CARDINALITY if num_steps is None else num_steps * len(replicas)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(elements))
    return without_tuner(dataset.prefetch(_BATCHES_AHEAD * len(replicas)))


def without_tuner(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """The dataset without TensorFlow's tuner, to which AUTOTUNE leaves buffers and threads.

    The tuner sleeps for times that double, up to a minute, and at the end of an iterator
    TensorFlow often waits until it wakes: a period of training could take twice its time.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def _arrays(corpus: EncodedCorpus, batch: Batch) -> tuple[dict[str, np.ndarray], np.ndarray]:
    fill = ((0, batch.num_rows - len(batch.rows)), (0, 0))
    source, labels = (
        np.pad(corpus.padded(side, batch.rows, batch.length), fill, constant_values=PAD_ID)
        for side in ("source", "target")
    )
    target = np.empty_like(labels)
    target[:, 0] = BOS_ID
    target[:, 1:] = labels[:, :-1]
    target[labels == PAD_ID] = PAD_ID
    return {"source": source, "target": target}, labels
