"""Batches for Keras's `fit`, as a dataset that reads them from a plan.

Two pairs in a batch of shape [B, L] = [2, 8]; 0 is PAD, 2 is BOS and 3 is EOS:

    source  [[17,  9, 24,  3,  0,  0,  0,  0],   the sentence, EOS, PAD
             [ 5, 11,  3,  0,  0,  0,  0,  0]]
    labels  [[31,  8,  4, 26,  3,  0,  0,  0],   its translation, EOS, PAD
             [12,  6, 40,  3,  0,  0,  0,  0]]
    target  [[ 2, 31,  8,  4, 26,  0,  0,  0],   BOS, and the labels without EOS:
             [ 2, 12,  6, 40,  0,  0,  0,  0]]   what the decoder sees
"""

import itertools
import logging
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import Strings, pairs
from tf_transformer.config import BOS_ID, PAD_ID, DataConfig, TrainingConfig
from tf_transformer.data.encoded_corpus import EncodedCorpus, encode_corpus
from tf_transformer.data.plan import Batch, BatchPlan
from tf_transformer.data.subword_sampling import StepAndReplica, SubwordSampler
from tf_transformer.data.text import SideName
from tf_transformer.data.tokenizer import Tokenizer

logger = logging.getLogger(__name__)


_BATCHES_AHEAD = 2  # prepared while an earlier one is trained on


def make_dataset(
    corpus: EncodedCorpus,
    plan: BatchPlan,
    sampler: SubwordSampler | None = None,
    put_slots: Callable[..., np.ndarray] | None = None,
    *,
    fill: bool = True,
    start_step: int = 0,
    num_steps: int | None = None,
    replicas: Sequence[int] = (0,),
    num_replicas: int = 1,
    advance: bool = False,
) -> tf.data.Dataset:
    """Returns the batches of a corpus's plan for Keras's `fit`, endless without `num_steps`.

    They are `({"source": [B, L], "target": [B, L]}, labels [B, L])`, all int32, as above. A
    sampler segments the sentences anew at every step, after `put_slots`, the method `put` of a
    `SlotSampler`, has put slots into them. Without `fill` a batch of fewer pairs
    than it has room for gets no rows of padding.

    `start_step` counts from 0 over all epochs. Each batch is split into `num_replicas` shares
    of equal shape, of which those of `replicas` become elements. With `advance` an iteration
    goes on where the last one ended.
    """

    def rows(side: SideName, batch: Batch, at: StepAndReplica) -> np.ndarray:  # [B, L]
        tags = plan.tags(batch.indices)  # that joined sources leave out
        left_out = tags if side == "source" else 0
        ids = corpus.padded(side, batch.indices, batch.length, left_out)
        if put_slots:
            ids = put_slots(side, ids, batch.indices, at[0], tags)
        if sampler:
            ids = sampler.segmented(side, ids, at)
        missing = batch.num_rows - len(batch.indices) if fill else 0
        return np.pad(ids, ((0, missing), (0, 0)), constant_values=PAD_ID)

    starts = itertools.count(start_step, (num_steps or 0) * advance)

    def generate() -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        step = start = next(starts)
        while num_steps is None or step < start + num_steps:
            batch = plan.batch(step)
            for replica in replicas:
                share, at = batch.share(replica, num_replicas), (step, replica)
                source, labels = rows("source", share, at), rows("target", share, at)
                target = np.roll(labels, 1, axis=1)
                target[:, 0] = BOS_ID
                target[labels == PAD_ID] = PAD_ID
                yield {"source": source, "target": target}, labels
            step += 1

    ids = tf.TensorSpec([None, None], tf.int32)
    signature = ({"source": ids, "target": ids}, ids)
    dataset = tf.data.Dataset.from_generator(generate, output_signature=signature)
    elements = tf.data.INFINITE_CARDINALITY if num_steps is None else num_steps * len(replicas)
    dataset = dataset.apply(tf.data.experimental.assert_cardinality(elements))
    return without_tuner(dataset.prefetch(_BATCHES_AHEAD * len(replicas)))


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

    Example:
        >>> import tf_transformer
        >>> tf_transformer.train_tokenizer(["a b", "c d"], "letters.model", vocab_size=268)
        >>> dataset = tf_transformer.text_dataset(["a b", "a"], ["c d", "c"], "letters.model")
        >>> [(inputs["source"].shape, labels.shape) for inputs, labels in dataset]
        [(TensorShape([2, 8]), TensorShape([2, 8]))]
    """
    _, sources, targets = pairs(source=source, target=target)
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
    return make_dataset(corpus, plan, num_steps=plan.steps_per_epoch, advance=True, fill=False)


def without_tuner(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Returns the dataset with the autotuner of tf.data disabled.

    The tuner sleeps for up to a minute, and at the end of an iteration TensorFlow often waits
    for it to wake: a training period could take twice as long.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)
