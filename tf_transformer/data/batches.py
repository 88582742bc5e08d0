"""Batches limited in tokens, of a few fixed shapes (paper 5.1), from one corpus or a mix.

Two pairs in a batch of shape [B, L] = [2, 8]; 0 is PAD, 2 is BOS and 3 is EOS:

    source  [[17,  9, 24,  3,  0,  0,  0,  0],   the sentence, EOS, PAD
             [ 5, 11,  3,  0,  0,  0,  0,  0]]
    labels  [[31,  8,  4, 26,  3,  0,  0,  0],   its translation, EOS, PAD
             [12,  6, 40,  3,  0,  0,  0,  0]]
    target  [[ 2, 31,  8,  4, 26,  0,  0,  0],   BOS, and the labels without EOS:
             [ 2, 12,  6, 40,  0,  0,  0,  0]]   what the decoder sees
"""

import functools
import itertools
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import Strings, UserError
from tf_transformer.base.errors import pairs as both_sides
from tf_transformer.config import BOS_ID, PAD_ID, DataConfig, TrainingConfig
from tf_transformer.config.settings import mix_weights
from tf_transformer.data.augmentation import Augmentation, Examples
from tf_transformer.data.encoded_corpus import EncodedCorpus, encode_corpus
from tf_transformer.data.subword_sampling import SubwordSampler
from tf_transformer.data.text import SIDES
from tf_transformer.data.tokenizer import Tokenizer

logger = logging.getLogger(__name__)

Key = tuple[int, int]  # step and replica

_BATCHES_AHEAD = 2  # prepared while an earlier one is trained on
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
        mixture: "Mixture | None" = None,
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


class Mixture:
    """Draws the pairs of each epoch from several corpora, in the proportions of a mix.

    An epoch has about as many pairs as all corpora together. The pairs of a corpus form an
    endless sequence of permutations, from which each epoch takes the next segment: no pair
    recurs before all others of its corpus and length have been seen.

    Args:
        sizes: number of pairs of each corpus, in the order of their indices.
        mix: see `config.settings.mix_weights`.
        seed: determines the permutations.

    Attributes:
        shares: share of each corpus in an epoch; they sum to 1.
        times: for each corpus, how often an epoch uses each of its pairs, on average.

    Raises:
        UserError: if a corpus is empty, or `mix` does not fit.
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
        """Selects an epoch's pairs from those of a bucket.

        Every epoch gets the same number, with at least 1 of each corpus in `pairs`.

        Args:
            pairs: their indices, ascending.
            length: length of the bucket.
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
    """Returns `count` elements of the endless permutations, starting at epoch * count."""
    first, start = divmod(epoch * count, len(pairs))
    last = (epoch * count + count - 1) // len(pairs)
    permutations = [
        np.random.default_rng([*seed, index]).permutation(pairs)
        for index in range(first, last + 1)
    ]
    return np.concatenate(permutations)[start : start + count]


def make_dataset(
    corpus: EncodedCorpus, plan: BatchPlan, sampler: SubwordSampler | None = None, **options
) -> tf.data.Dataset:
    """Returns the batches of `plan` for Keras's `fit`.

    Args:
        corpus: corpus of the plan.
        plan: the batches.
        sampler: segments the sentences anew at every step; None for the ids of the corpus.
        **options: options of `dataset_of`.

    Returns:
        `({"source": [B, L], "target": [B, L]}, labels [B, L])`, all int32 and padded with PAD.
        Labels are the target sentence with EOS; "target", the decoder's input, is BOS followed
        by the labels without EOS.
    """

    def arrays(batch: Batch, key: Key) -> tuple[dict[str, np.ndarray], np.ndarray]:
        padded = padding_of(corpus, sampler, key)
        fill = ((0, batch.num_rows - len(batch.rows)), (0, 0))
        tags = {"source": plan.tags(batch.rows), "target": 0}
        source, labels = (
            np.pad(
                padded(side, batch.rows, batch.length, tags=tags[side]),
                fill,
                constant_values=PAD_ID,
            )
            for side in SIDES
        )
        target = np.roll(labels, 1, axis=1)
        target[:, 0] = BOS_ID
        target[labels == PAD_ID] = PAD_ID
        return {"source": source, "target": target}, labels

    ids = tf.TensorSpec([None, None], tf.int32)
    return dataset_of(plan, arrays, ({"source": ids, "target": ids}, ids), **options)


def text_dataset(
    source: Strings,
    target: Strings,
    tokenizer: Tokenizer | str | Path,
    *,
    batch_tokens: int = 4_096,
    max_length: int = DataConfig.max_length,
    seed: int = TrainingConfig.seed,
) -> tf.data.Dataset:
    """Returns sentence pairs as batches of similar length for Keras's `fit`, as `train` does.

    An iteration is an epoch: it has every pair once, in another order than the one before.
    Pairs that are empty, too long or very different in length are left out, with a warning.

    Args:
        source: sentences, a list of strings.
        target: their translations.
        tokenizer: for both sides; or its file.
        batch_tokens: largest number of positions on either side of a batch, B * S and B * T.
        max_length: limit on either side, in tokens with EOS.
        seed: determines the order.

    Returns:
        Batches `({"source": [B, S], "target": [B, T]}, labels [B, T])` of int32 ids, with S = T
        and 0 for padding. "target" is BOS and the labels without EOS. `len` of the dataset is
        the number of steps in an epoch.

    Raises:
        TypeError: if the texts are not lists of strings.
        ValueError: if they differ in length.
        UserError: if no pair is left, or one does not fit into `batch_tokens`.
    """
    _, sources, targets = both_sides(source=source, target=target)
    with tempfile.TemporaryDirectory() as folder:  # its files stay mapped when it is deleted
        corpus = encode_corpus(
            [zip(sources, targets, strict=True)],
            Tokenizer(tokenizer) if isinstance(tokenizer, str | Path) else tokenizer,
            Path(folder, "corpus"),
            max_length=max_length,
            max_ratio=DataConfig.max_ratio,
        )
    if corpus.report.kept < corpus.report.read:
        logger.warning("text_dataset: %s", corpus.report.summary())
    lengths = corpus.source_lengths, corpus.target_lengths
    plan = BatchPlan(*lengths, batch_tokens=batch_tokens, max_length=max_length, seed=seed)
    return make_dataset(corpus, plan, num_steps=plan.steps_per_epoch, advance=True)


def padding_of(
    corpus: EncodedCorpus, sampler: SubwordSampler | None, key: Key
) -> Callable[..., np.ndarray]:
    """Returns `padded` of the corpus, or that of the sampler for a step and replica."""
    return functools.partial(sampler.padded, key=key) if sampler else corpus.padded


def dataset_of(
    plan: BatchPlan,
    arrays: Callable[[Batch, Key], Any],
    signature: Any,
    *,
    start_step: int = 0,
    num_steps: int | None = None,
    replicas: Sequence[int] = (0,),
    num_replicas: int = 1,
    advance: bool = False,
) -> tf.data.Dataset:
    """Maps the batches of `plan` through `arrays`.

    Args:
        plan: the batches.
        arrays: maps a batch, or a share of one, and its step and replica to an element of the
            dataset.
        signature: the element's tensors, as `tf.TensorSpec`.
        start_step: the first step, counted from 0 over all epochs.
        num_steps: number of steps; None for endless batches.
        replicas: replicas whose shares become elements of the dataset, in this order.
        num_replicas: number of shares, of equal shape, that each batch is split into.
        advance: whether each iteration goes on where the last one ended, after `num_steps`.
    """
    starts = itertools.count(start_step, (num_steps or 0) * advance)

    def generate() -> Iterator[Any]:
        step = start = next(starts)
        while num_steps is None or step < start + num_steps:
            batch = plan.batch(step)
            for replica in replicas:
                yield arrays(batch.share(replica, num_replicas), (step, replica))
            step += 1

    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    elements = tf.data.INFINITE_CARDINALITY if num_steps is None else num_steps * len(replicas)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(elements))
    return without_tuner(dataset.prefetch(_BATCHES_AHEAD * len(replicas)))


def without_tuner(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with the autotuner of tf.data disabled.

    The tuner sleeps for up to a minute, and at the end of an iteration TensorFlow often waits
    for it to wake: a training period could take twice as long.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
