"""Tokenised corpus of labelled sentences on disk, and its batches."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.config import PAD_ID
from tf_transformer.data.batches import Batch, BatchPlan, Key, dataset_of, padding_of
from tf_transformer.data.encoded_corpus import (
    Chunk,
    EncodedCorpus,
    Pairs,
    id_dtype,
    write_corpus,
)
from tf_transformer.data.subword_sampling import SubwordSampler
from tf_transformer.data.text import SideName
from tf_transformer.data.tokenizer import Tokenizer


class LabelledCorpus(EncodedCorpus):
    """Encoded sentences, each with EOS, and their classes; written by `encode_labelled`.

    The target side of this `EncodedCorpus` holds no text: one number per sentence, its class,
    counted from 1.
    """

    text_sides: tuple[SideName, ...] = ("source",)


def encode_labelled(
    texts: Sequence[Iterable[tuple[str, str]]],
    tokenizer: Tokenizer,
    labels: Sequence[str],
    directory: Path,
    *,
    max_length: int,
    fingerprint: str = "",
    progress: Callable[[int], None] | None = None,
) -> LabelledCorpus:
    """Tokenises labelled sentences into `directory`, which appears whole or not at all.

    No sentence is dropped; long ones are truncated.

    Args:
        texts: (sentence, label) pairs of each text.
        tokenizer: of the sentences.
        labels: all labels; the first is class 1.
        directory: the folder to write; an older corpus there is replaced.
        max_length: longest sentence, in tokens with EOS.
        fingerprint: stored with the corpus, for the caller to compare.
        progress: called with the number of sentences done so far.
    """
    class_of = {label: index for index, label in enumerate(labels, start=1)}

    def encode(chunk: Pairs) -> Chunk:
        ids, lengths, cut = sentence_ids(tokenizer, [text for text, _ in chunk], max_length)
        classes = np.array([class_of[label] for _, label in chunk], np.int32)
        return Chunk([(ids, lengths), (classes, np.ones_like(classes))], {}, cut)

    dtype = id_dtype(max(tokenizer.vocab_size, len(labels) + 1))
    limits = {"max_length": max_length, "max_ratio": 0.0}
    write_corpus(directory, texts, encode, dtype, fingerprint, progress, limits)
    return LabelledCorpus.open(directory)


def sentence_ids(
    tokenizer: Tokenizer, sentences: Sequence[str], max_length: int
) -> tuple[np.ndarray, np.ndarray, int]:
    """Returns the concatenated ids of sentences, each truncated to `max_length` with EOS.

    A lone surrogate, which Python's strings may hold, counts as invalid UTF-8.

    Returns:
        int32 ids, int32 lengths [sentences], and the number of truncated sentences.
    """
    lines = [sentence.encode("utf-8", "surrogatepass") for sentence in sentences]
    ids, cut = tokenizer.encode(tf.constant(lines, tf.string), limit=max_length)
    lengths = ids.row_lengths().numpy().astype(np.int32)
    return ids.values.numpy(), lengths, int(cut.numpy().sum())


def labelled_dataset(
    corpus: EncodedCorpus, plan: BatchPlan, sampler: SubwordSampler | None = None, **options
) -> tf.data.Dataset:
    """Returns the batches of `plan` in the form that Keras expects.

    Args:
        corpus: a `LabelledCorpus`.
        plan: the batches of `corpus`.
        sampler: segments the sentences anew at every step; None for the ids of the corpus.
        **options: as in `batches.dataset_of`.

    Returns:
        `({"source": [B, S]}, classes [B])`, all int32 and padded with PAD.
    """

    def arrays(batch: Batch, key: Key) -> tuple[dict[str, np.ndarray], np.ndarray]:
        missing = (0, batch.num_rows - len(batch.rows))
        source = padding_of(corpus, sampler, key)("source", batch.rows, batch.length)
        classes = corpus.padded("target", batch.rows, 1)[:, 0]
        source = np.pad(source, (missing, (0, 0)), constant_values=PAD_ID)
        return {"source": source}, np.pad(classes, missing, constant_values=PAD_ID)

    signature = (
        {"source": tf.TensorSpec([None, None], tf.int32)},
        tf.TensorSpec([None], tf.int32),
    )
    return dataset_of(plan, arrays, signature, **options)
