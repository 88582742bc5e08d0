"""The functions that a SavedModel serves: plain variables and operations, no Keras.

B batch, S source length, T target length, W beam width. Every output has one row for each row
of the request, so that a server may put requests together. One row never changes the values of
another; the width of padded outputs is that of the longest row.
"""

from collections.abc import Callable

import tensorflow as tf

from tf_transformer.config import EOS_ID, MAX_ALPHA, PAD_ID
from tf_transformer.decoding.alignment import nearest_pieces
from tf_transformer.decoding.hypotheses import Hypotheses, length_penalty
from tf_transformer.decoding.translator import Translator
from tf_transformer.serving.groups import in_groups
from tf_transformer.serving.token_signature import (
    IDS,
    Outputs,
    TokenSignature,
    exported,
    longest,
)


class ServedModel(tf.Module):
    """What the signatures capture: the model's variables and, for text, the tokenizer."""

    def __init__(self, translator: Translator, text: bool = True) -> None:
        super().__init__(name="translator")
        if text:
            self.tokenizer = translator.tokenizer
        # Keras's own objects would be written with a second copy of every weight.
        self.weights = [variable.value for variable in translator.model.trainable_variables]


class Signatures(TokenSignature):
    """All signatures as TensorFlow functions, which share the two searches and the scorer.

    Args:
        translator: what to serve; its `num_hypotheses` is not used.
    """

    def __init__(self, translator: Translator) -> None:
        super().__init__(translator)
        self._tokenizer = translator.tokenizer
        decoding, positions = translator.decoding, self._positions
        every = translator.with_decoding(decoding, decoding.beam_size)
        self._n_best = in_groups(
            lambda source, alpha, prefix, max_lengths: every.searcher.search(
                source, alpha=alpha, prefix=prefix, max_lengths=max_lengths
            ),
            [IDS, tf.TensorSpec([None]), IDS, tf.TensorSpec([None], tf.int32)],
            positions,
        )
        self._log_probs = in_groups(translator.scorer.log_probs, [IDS, IDS], positions)
        self._attend = in_groups(self._weights_and_nearest, [IDS, IDS], positions)

    def functions(self) -> dict[str, Callable]:
        """A function for each signature name."""
        text = tf.string
        options = {"alpha": tf.float32, "max_length": tf.int32, "prefix": text}
        return super().functions() | {
            "serving_default": _signature(self.translate, text=text),
            "nbest": _signature(self.n_best, text=text),
            "with_options": _signature(self.with_options, text=text, **options),
            "attention": _signature(self.attention, text=text),
            "score": _signature(self.score, source=text, target=text),
        }

    def translate(self, text: tf.Tensor) -> Outputs:
        """Strings [B] to the best translation of each."""
        source, cut = self._translator.codec.encode(text)
        found = self._best(source.to_tensor(PAD_ID))
        blank = _is_blank(source)
        translations = self._tokenizer.detokenize(found.tokens[:, 0])
        return {
            "translation": tf.where(blank, "", translations),
            "score": tf.where(blank, 0.0, found.scores[:, 0]),
            "source_cut": cut,
        }

    def n_best(self, text: tf.Tensor) -> Outputs:
        """Strings [B] to W translations of each, best first."""
        unset = tf.fill(tf.shape(text), -1)
        found = self.with_options(
            text, tf.cast(unset, tf.float32), unset, tf.fill(tf.shape(text), "")
        )
        return {name: found[name] for name in ("translations", "scores", "count", "source_cut")}

    def with_options(
        self, text: tf.Tensor, alpha: tf.Tensor, max_length: tf.Tensor, prefix: tf.Tensor
    ) -> Outputs:
        """`n_best`, each text with options of its own.

        Args:
            text: strings [B].
            alpha: float32 [B], exponent of the length penalty; the export's where negative.
            max_length: int32 [B], the most tokens, EOS counted, within the limits of the
                export; those alone where it is not positive.
            prefix: strings [B], how every translation begins, within its `max_length`; it may
                be empty.
        """
        source, cut = self._translator.codec.encode(text)
        ids = source.to_tensor(PAD_ID)
        limits = tf.where(max_length > 0, max_length, tf.int32.max)
        lengths = tf.cast(source.row_lengths(), tf.int32)
        beginning, prefix_cut = self._translator.codec.encode_prefix(prefix, lengths, limits)
        found = self._n_best(
            ids,
            # Not a number is not above 0 either.
            tf.where(alpha >= 0, tf.minimum(alpha, MAX_ALPHA), self._translator.decoding.alpha),
            beginning.to_tensor(PAD_ID),
            limits,
        )
        cuts = {"source_cut": cut, "prefix_cut": prefix_cut}
        return self._n_best_outputs(found, _is_blank(source)) | cuts

    def _n_best_outputs(self, found: Hypotheses, blank: tf.Tensor) -> Outputs:
        batch, beams, length = tf.unstack(tf.shape(found.tokens))
        flat = tf.reshape(found.tokens, [batch * beams, length])
        translations = tf.reshape(self._tokenizer.detokenize(flat), [batch, beams])
        count = tf.math.count_nonzero(found.lengths, axis=1, dtype=tf.int32)
        blank_row = blank[:, tf.newaxis]
        return {
            "translations": tf.where(blank_row, "", translations),
            "scores": tf.where(blank_row, 0.0, found.scores),
            "count": tf.where(blank, 1, count),
        }

    def attention(self, text: tf.Tensor) -> Outputs:
        """Strings [B] to the best translation of each, and what it attends to.

        The weights are those of the cross-attention in the layer that alignments are read
        off, the mean of its heads; see `decoding.alignment`.
        """
        source, cut = self._translator.codec.encode(text)
        ids = source.to_tensor(PAD_ID)  # [B, S]
        found = self._best(ids)
        target = found.tokens[:, 0, : longest(found.lengths[:, 0])]  # [B, T]
        weights, nearest = self._attend(ids, target)
        blank = _is_blank(source)
        real = (target != PAD_ID) & ~blank[:, tf.newaxis]
        return {
            "translation": tf.where(blank, "", self._tokenizer.detokenize(target)),
            "source_pieces": self._pieces(ids),
            "target_pieces": tf.where(real, self._pieces(target), ""),
            "attention": tf.where(real[..., tf.newaxis], weights, 0.0),
            "alignment": tf.where(real & (target != EOS_ID), nearest, -1),
            "source_cut": cut,
        }

    def _weights_and_nearest(
        self, source: tf.Tensor, target: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """The weights [B, T, S] and alignments [B, T] of `attention`, of ids."""
        cross = self._translator.scorer.cross_weights(source, target)  # [B, H, T, S]
        return tf.reduce_mean(cross, axis=1), nearest_pieces(cross, source)

    def _pieces(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.where(ids == PAD_ID, "", self._tokenizer.pieces(ids))

    def score(self, source: tf.Tensor, target: tf.Tensor) -> Outputs:
        """Strings [B] and translations of them [B] to the translations' log-probabilities."""
        tf.debugging.assert_equal(
            tf.size(source), tf.size(target), "`source` and `target` must be of one length."
        )
        limit = self._translator.codec.target_limit
        source_ids, source_cut = self._translator.codec.encode(source)
        target_ids, target_cut = self._translator.codec.encode(target, limit, target=True)
        log_prob = self._log_probs(source_ids.to_tensor(PAD_ID), target_ids.to_tensor(PAD_ID))
        size = tf.cast(target_ids.row_lengths(), tf.int32)
        return {
            "log_prob": log_prob,
            "score": log_prob / length_penalty(size, self._translator.decoding.alpha),
            "num_tokens": size,
            "source_cut": source_cut,
            "target_cut": target_cut,
        }


def _signature(method: Callable[..., Outputs], **types: tf.DType) -> Callable:
    """A TensorFlow function of vectors with these names."""
    specs = [tf.TensorSpec([None], dtype, name=name) for name, dtype in types.items()]
    return exported(
        lambda *vectors: method(*(tf.ensure_shape(vector, [None]) for vector in vectors)),
        *specs,
    )


def _is_blank(source: tf.RaggedTensor) -> tf.Tensor:
    """bool [B]: whether a text is EOS alone."""
    return source.row_lengths() == 1
