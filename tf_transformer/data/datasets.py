"""Batches of a plan as a `tf.data.Dataset`, from any step on, whole or split among replicas."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, PAD_ID
from tf_transformer.data.batching import Batch, BatchPlan
from tf_transformer.data.corpus import SIDES, SideName
from tf_transformer.data.encoded import EncodedCorpus
from tf_transformer.data.subword_sampling import SubwordSampler

Key = tuple[int, int]  # step and replica

_BATCHES_AHEAD = 2  # prepared while an earlier one is trained on


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
        source, labels = (
            np.pad(padded(side, batch.rows, batch.length), fill, constant_values=PAD_ID)
            for side in SIDES
        )
        target = np.roll(labels, 1, axis=1)
        target[:, 0] = BOS_ID
        target[labels == PAD_ID] = PAD_ID
        return {"source": source, "target": target}, labels

    ids = tf.TensorSpec([None, None], tf.int32)
    return dataset_of(plan, arrays, ({"source": ids, "target": ids}, ids), **options)


def padding_of(
    corpus: EncodedCorpus, sampler: SubwordSampler | None, key: Key
) -> Callable[[SideName, np.ndarray, int], np.ndarray]:
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
    """

    def generate() -> Iterator[Any]:
        step = start_step
        while num_steps is None or step < start_step + num_steps:
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
