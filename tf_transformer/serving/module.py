"""The functions that a SavedModel serves: plain variables and operations, no Keras.

B batch, S source length, T target length, W beam width. Every output has one row for each row
of the request, so that a server may put requests together. One row never changes the values of
another; the width of padded outputs is that of the longest row.
"""

from collections.abc import Callable

import tensorflow as tf

from tf_transformer.config import EOS_ID, MAX_ALPHA, PAD_ID, UNK_ID
from tf_transformer.decoding.alignment import nearest_pieces
from tf_transformer.decoding.search import Hypotheses, length_penalty
from tf_transformer.decoding.translator import Translator
from tf_transformer.serving.groups import in_groups

Outputs = dict[str, tf.Tensor]

_IDS = tf.TensorSpec([None, None], tf.int32)


class ServedModel(tf.Module):
    """What the signatures capture: the model's variables and the tokenizer."""

    def __init__(self, translator: Translator) -> None:
        super().__init__(name="translator")
        self.tokenizer = translator.tokenizer
        # Keras's own objects would be written with a second copy of every weight.
        self.weights = [variable.value for variable in translator.model.trainable_variables]


class Signatures:
    """The signatures as TensorFlow functions, which share the two searches and the scorer.

    Args:
        translator: what to serve; its `num_hypotheses` is not used.
    """

    def __init__(self, translator: Translator) -> None:
        self._translator = translator
        self._tokenizer = translator.tokenizer
        decoding = translator.decoding
        every = translator.with_decoding(decoding, decoding.beam_size)
        positions = decoding.batch_tokens // decoding.beam_size
        # Functions of their own, so that the graph holds each of them once.
        self._best = in_groups(translator.search, [_IDS], positions)
        self._n_best = in_groups(
            lambda source, alpha, prefix, max_lengths: every.search(
                source, alpha=alpha, prefix=prefix, max_lengths=max_lengths
            ),
            [_IDS, tf.TensorSpec([None]), _IDS, tf.TensorSpec([None], tf.int32)],
            positions,
        )
        self._log_probs = in_groups(translator.log_probs, [_IDS, _IDS], positions)
        self._attend = in_groups(self._weights_and_nearest, [_IDS, _IDS], positions)

    def functions(self) -> dict[str, Callable]:
        """A function for each signature name."""
        text, integer = tf.string, tf.int32
        options = {"alpha": tf.float32, "max_length": integer, "prefix": text}
        return {
            "serving_default": _signature(self.translate, text=text),
            "nbest": _signature(self.n_best, text=text),
            "with_options": _signature(self.with_options, text=text, **options),
            "tokens": _shared(self.tokens, tf.TensorSpec([None, None], integer, "tokens")),
            "attention": _signature(self.attention, text=text),
            "score": _signature(self.score, source=text, target=text),
        }

    def translate(self, text: tf.Tensor) -> Outputs:
        """Strings [B] to the best translation of each."""
        source, cut = self._translator.encode(text)
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
            prefix: strings [B], how every translation begins; it may be empty.
        """
        source, cut = self._translator.encode(text)
        ids = source.to_tensor(PAD_ID)
        beginning, prefix_cut = self._translator.encode(prefix, target=True)
        found = self._n_best(
            ids,
            # Not a number is not above 0 either.
            tf.where(alpha >= 0, tf.minimum(alpha, MAX_ALPHA), self._translator.decoding.alpha),
            beginning[:, :-1].to_tensor(PAD_ID),
            tf.where(max_length > 0, max_length, tf.int32.max),
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

    def tokens(self, tokens: tf.Tensor) -> Outputs:
        """Source ids [B, S] to the ids of the best translation of each."""
        source, cut = self._translator.close(_known_ids(tokens, self._tokenizer.vocab_size))
        found = self._best(source.to_tensor(PAD_ID))
        blank = _is_blank(source)
        size = tf.where(blank, 1, found.lengths[:, 0])
        ids = found.tokens[:, 0, : _longest(size)]
        ended = tf.where(tf.range(tf.shape(ids)[1]) == 0, EOS_ID, PAD_ID)
        return {
            "tokens": tf.where(blank[:, tf.newaxis], ended, ids),
            "score": tf.where(blank, 0.0, found.scores[:, 0]),
            "num_tokens": size,
            "source_cut": cut,
        }

    def attention(self, text: tf.Tensor) -> Outputs:
        """Strings [B] to the best translation of each, and what it attends to.

        The weights are those of the cross-attention in the layer that alignments are read
        off, the mean of its heads; see `decoding.alignment`.
        """
        source, cut = self._translator.encode(text)
        ids = source.to_tensor(PAD_ID)  # [B, S]
        found = self._best(ids)
        target = found.tokens[:, 0, : _longest(found.lengths[:, 0])]  # [B, T]
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
        cross = self._translator.cross_weights(source, target)  # [B, H, T, S]
        return tf.reduce_mean(cross, axis=1), nearest_pieces(cross, source)

    def _pieces(self, ids: tf.Tensor) -> tf.Tensor:
        return tf.where(ids == PAD_ID, "", self._tokenizer.pieces(ids))

    def score(self, source: tf.Tensor, target: tf.Tensor) -> Outputs:
        """Strings [B] and translations of them [B] to the translations' log-probabilities."""
        tf.debugging.assert_equal(
            tf.size(source), tf.size(target), "`source` and `target` must be of one length."
        )
        limit = self._translator.target_limit
        source_ids, source_cut = self._translator.encode(source)
        target_ids, target_cut = self._translator.encode(target, limit, target=True)
        log_prob = self._log_probs(source_ids.to_tensor(PAD_ID), target_ids.to_tensor(PAD_ID))
        size = tf.cast(target_ids.row_lengths(), tf.int32)
        return {
            "log_prob": log_prob,
            "score": log_prob / length_penalty(size, self._translator.decoding.alpha),
            "num_tokens": size,
            "source_cut": source_cut,
            "target_cut": target_cut,
        }


def _shared(function: Callable, *specs: tf.TensorSpec) -> Callable:
    return tf.function(function, input_signature=specs, autograph=False)


def _signature(method: Callable[..., Outputs], **types: tf.DType) -> Callable:
    """A TensorFlow function of vectors with these names."""
    specs = [tf.TensorSpec([None], dtype, name=name) for name, dtype in types.items()]
    return _shared(
        lambda *vectors: method(*(tf.ensure_shape(vector, [None]) for vector in vectors)),
        *specs,
    )


def _longest(sizes: tf.Tensor) -> tf.Tensor:
    """The largest of sizes [B]; 0 if there is none, of which the maximum is negative."""
    return tf.maximum(tf.reduce_max(sizes), 0)


def _is_blank(source: tf.RaggedTensor) -> tf.Tensor:
    """bool [B]: whether a text is EOS alone."""
    return source.row_lengths() == 1


def _known_ids(ids: tf.Tensor, vocab_size: int) -> tf.RaggedTensor:
    """The ids [B, S] before the first EOS or PAD, UNK in place of those not in the vocabulary.

    What follows EOS is never read: a server that pads requests to one width fills with what
    it likes.
    """
    ids = tf.ensure_shape(ids, [None, None])
    ended = tf.cumsum(tf.cast((ids == EOS_ID) | (ids == PAD_ID), tf.int32), axis=1) > 0
    known = (ids >= 0) & (ids < vocab_size)
    return tf.ragged.boolean_mask(tf.where(known, ids, UNK_ID), ~ended)
