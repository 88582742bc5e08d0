"""The signature from token ids to token ids, the part of a SavedModel that needs no tokenizer.

B batch, S source length, T target length. Ragged tensors and other operations that LiteRT lacks
must stay out of its graph: a test converts it.
"""

from collections.abc import Callable

import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID, UNK_ID
from tf_transformer.decoding.translator import Translator
from tf_transformer.serving.groups import in_groups

Outputs = dict[str, tf.Tensor]

IDS = tf.TensorSpec([None, None], tf.int32)


class TokenSignature:
    """The signature from ids to ids, whose graph has no tokenizer.

    Args:
        translator: what to serve; its `num_hypotheses` is not used.
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._positions = translator.decoding.batch_tokens // translator.decoding.beam_size
        # A function of its own, so that the graph holds it once.
        self._best = in_groups(translator.searcher.search, [IDS], self._positions)

    def functions(self) -> dict[str, Callable]:
        """A function for each signature name."""
        return {"tokens": exported(self.tokens, tf.TensorSpec(IDS.shape, IDS.dtype, "tokens"))}

    def tokens(self, tokens: tf.Tensor) -> Outputs:
        """Source ids [B, S] to the ids of the best translation of each."""
        limit = self._translator.codec.source_limit
        source, sizes, cut = _closed(tokens, self._translator.model.vocab_size, limit)
        found = self._best(source)
        blank = sizes == 0
        size = tf.where(blank, 1, found.lengths[:, 0])
        ids = found.tokens[:, 0, : longest(size)]
        ended = tf.where(tf.range(tf.shape(ids)[1]) == 0, EOS_ID, PAD_ID)
        return {
            "tokens": tf.where(blank[:, tf.newaxis], ended, ids),
            "score": tf.where(blank, 0.0, found.scores[:, 0]),
            "num_tokens": size,
            "source_cut": cut,
        }


def exported(function: Callable, *specs: tf.TensorSpec) -> Callable:
    """A TensorFlow function of arguments that these describe."""
    return tf.function(function, input_signature=specs, autograph=False)


def longest(sizes: tf.Tensor) -> tf.Tensor:
    """The largest of sizes [B]; 0 if there is none, of which the maximum is negative."""
    return tf.maximum(tf.reduce_max(sizes), 0)


def _closed(
    ids: tf.Tensor, vocab_size: int, limit: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Rows up to their first EOS or PAD, UNK in place of ids outside the vocabulary.

    What follows EOS is never read: a server that pads requests to one width fills with what
    it likes.

    Args:
        ids: int32 [B, any].
        vocab_size: V.
        limit: the most tokens of a row, with EOS.

    Returns:
        The rows with EOS and padding [B, S], their sizes without EOS [B], and whether a row
        was cut [B].
    """
    ids = tf.ensure_shape(ids, [None, None])
    ended = tf.cumsum(tf.cast((ids == EOS_ID) | (ids == PAD_ID), tf.int32), axis=1) > 0
    sizes = tf.reduce_sum(tf.cast(~ended, tf.int32), axis=1)
    cut = sizes > limit - 1
    sizes = tf.minimum(sizes, limit - 1)
    positions, ends = tf.range(longest(sizes) + 1), sizes[:, tf.newaxis]
    known = tf.where((ids >= 0) & (ids < vocab_size), ids, UNK_ID)
    known = tf.pad(known, [[0, 0], [0, 1]])[:, : tf.size(positions)]
    closing = tf.where(positions == ends, EOS_ID, PAD_ID)
    return tf.where(positions < ends, known, closing), sizes, cut
