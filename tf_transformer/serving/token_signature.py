"""The signature from token ids to token ids, the only one that needs no tokenizer.

B batch, S source length, T target length. Its graph must do without ragged tensors and other
operations that LiteRT lacks: a test converts it.
"""

from collections.abc import Callable
from typing import TypeAlias

import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID, UNK_ID
from tf_transformer.decoding.translator import BatchTranslator
from tf_transformer.serving.groups import in_groups

Outputs = dict[str, tf.Tensor]
Function: TypeAlias = tf.types.experimental.PolymorphicFunction

IDS = tf.TensorSpec([None, None], tf.int32)


class TokenSignature:
    """The signature from ids to ids, whose graph has no tokenizer.

    Args:
        translator: the translator to serve; its `num_hypotheses` is not used.

    Attributes:
        search: the search for the best translations of ids, as a TensorFlow function.
        positions: maximum positions computed together, see `in_groups`.
    """

    def __init__(self, translator: BatchTranslator) -> None:
        self._translator = translator
        self.positions = translator.decoding.batch_tokens // translator.decoding.beam_size
        # A TensorFlow function, so that the graphs of all signatures share it.
        self.search = in_groups(translator.searcher.search, [IDS], self.positions)

    def functions(self) -> dict[str, Function]:
        """Returns a function for each signature name."""
        return {"tokens": exported(self.tokens, tf.TensorSpec(IDS.shape, IDS.dtype, "tokens"))}

    def tokens(self, tokens: tf.Tensor) -> Outputs:
        """Returns the ids of the best translation of each source, ids [B, S]."""
        limit = self._translator.codec.source_limit
        source, sizes, cut = _closed(tokens, self._translator.model.vocab_size, limit)
        hypotheses = self.search(source)
        blank = sizes == 0
        size = tf.where(blank, 1, hypotheses.lengths[:, 0])
        ids = hypotheses.tokens[:, 0, : longest(size)]
        ended = tf.where(tf.range(tf.shape(ids)[1]) == 0, EOS_ID, PAD_ID)
        return {
            "tokens": tf.where(blank[:, tf.newaxis], ended, ids),
            "score": tf.where(blank, 0.0, hypotheses.scores[:, 0]),
            "num_tokens": size,
            "source_cut": cut,
        }


def exported(function: Callable, *specs: tf.TensorSpec) -> Function:
    """Returns a TensorFlow function with arguments of these specs."""
    return tf.function(function, input_signature=specs, autograph=False)


def of_vectors(method: Callable[..., Outputs], **types: tf.DType) -> Function:
    """Returns a TensorFlow function with vectors of these names and types as arguments."""
    specs = [tf.TensorSpec([None], dtype, name=name) for name, dtype in types.items()]
    return exported(
        lambda *vectors: method(*(tf.ensure_shape(vector, [None]) for vector in vectors)),
        *specs,
    )


def longest(sizes: tf.Tensor) -> tf.Tensor:
    """Returns the largest of sizes [B]; 0 for an empty batch, whose maximum is negative."""
    return tf.maximum(tf.reduce_max(sizes), 0)


def _closed(
    ids: tf.Tensor, vocab_size: int, limit: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts rows at their first EOS or PAD, and replaces ids outside the vocabulary by UNK.

    Ids after EOS are never read, since a server may pad requests to one width with any value.

    Args:
        ids: int32 [B, any].
        vocab_size: V.
        limit: maximum tokens in a row, EOS counted.

    Returns:
        The rows with EOS and padding [B, S], their sizes without EOS [B], and whether each was
        cut at the limit [B].
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
