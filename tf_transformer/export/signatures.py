"""The functions that a SavedModel serves: plain variables and operations, without Keras.

B batch, S source length, T target length, H heads, W beam width. Every output has one row for
each row of the request, so that a server may batch requests. No row changes the values of
another; outputs are padded to the longest row.
"""

import tensorflow as tf

from tf_transformer.config import EOS_ID, MAX_ALPHA, PAD_ID, UNK_ID, DecodingConfig
from tf_transformer.data.text import SideName
from tf_transformer.decoding.alignment import nearest_pieces
from tf_transformer.decoding.beam_search import Hypotheses, length_penalty
from tf_transformer.decoding.engine import GraphEngine, models_of
from tf_transformer.decoding.text_codec import IDS
from tf_transformer.export.functions import (
    Function,
    Outputs,
    exported,
    in_groups,
    longest,
    of_vectors,
)


class TokenSignature:
    """The signature from ids to ids, the only one that needs no tokenizer.

    Its graph must do without ragged tensors and other operations that LiteRT lacks: a test
    converts it.

    Args:
        engine: the model to serve and its tokenizer.
        decoding: settings of the search.

    Attributes:
        search: the search for the best translations of ids, as a TensorFlow function that the
            graphs of all signatures share.
        positions: maximum positions computed together, see `in_groups`.
    """

    def __init__(self, engine: GraphEngine, decoding: DecodingConfig) -> None:
        self._engine, self._codec = engine, engine.codec(decoding)
        self.positions = decoding.batch_tokens // decoding.beam_size
        self.search = in_groups(
            lambda source: engine.search_ids(source, decoding), [IDS], self.positions
        )

    def functions(self) -> dict[str, Function]:
        """Returns a function for each signature name."""
        return {"tokens": exported(self.tokens, tf.TensorSpec(IDS.shape, IDS.dtype, "tokens"))}

    def tokens(self, tokens: tf.Tensor) -> Outputs:
        """Returns the ids of the best translation of each source, ids [B, S]."""
        limit = self._codec.source_limit
        source, sizes, cut = _closed(tokens, self._engine.model.vocab_size, limit)
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


class Signatures:
    """All signatures as TensorFlow functions, which share the two searches and the scorer.

    Args:
        engine: the model to serve and its tokenizer.
        decoding: settings of the search.
    """

    def __init__(self, engine: GraphEngine, decoding: DecodingConfig) -> None:
        self._tokenizer, self._engine = engine.tokenizer, engine
        self._codec, self._decoding = engine.codec(decoding), decoding
        self._of_ids = TokenSignature(engine, decoding)
        self._search, positions = self._of_ids.search, self._of_ids.positions
        self._n_best = in_groups(
            lambda source, alpha, prefix, max_lengths: engine.search_ids(
                source,
                decoding,
                decoding.beam_size,
                alpha=alpha,
                prefix=prefix,
                max_lengths=max_lengths,
            ),
            [IDS, tf.TensorSpec([None]), IDS, tf.TensorSpec([None], tf.int32)],
            positions,
        )
        self._log_probs = in_groups(engine.log_probs, [IDS, IDS], positions)
        self._has_attention = len(models_of(engine.model)) == 1
        if self._has_attention:
            self._attend = in_groups(self._heads_and_nearest, [IDS, IDS], positions)

    def functions(self) -> dict[str, Function]:
        """Returns a function for each signature name; an ensemble has no `attention`."""
        text = tf.string
        options = {"alpha": tf.float32, "max_length": tf.int32, "prefix": text}
        functions = self._of_ids.functions() | {
            "serving_default": of_vectors(self.translate, text=text),
            "nbest": of_vectors(self.n_best, text=text),
            "with_options": of_vectors(self.with_options, text=text, **options),
            "score": of_vectors(self.score, source=text, target=text),
        }
        if self._has_attention:
            functions["attention"] = of_vectors(self.attention, text=text)
        return functions

    def translate(self, text: tf.Tensor) -> Outputs:
        """Returns the best translation of each text, strings [B]."""
        source, cut = self._codec.encode(text)
        hypotheses = self._search(source.to_tensor(PAD_ID))
        blank = _is_blank(source)
        translations = self._tokenizer.detokenize(hypotheses.tokens[:, 0])
        return {
            "translation": tf.where(blank, "", translations),
            "score": tf.where(blank, 0.0, hypotheses.scores[:, 0]),
            "source_cut": cut,
        }

    def n_best(self, text: tf.Tensor) -> Outputs:
        """Returns W translations of each text, strings [B], best first."""
        unset = tf.fill(tf.shape(text), -1)
        outputs = self.with_options(
            text, tf.cast(unset, tf.float32), unset, tf.fill(tf.shape(text), "")
        )
        names = ("translations", "scores", "count", "source_cut")
        return {name: outputs[name] for name in names}

    def with_options(
        self, text: tf.Tensor, alpha: tf.Tensor, max_length: tf.Tensor, prefix: tf.Tensor
    ) -> Outputs:
        """Returns the outputs of `n_best` and more, with options for each text.

        Args:
            text: strings [B].
            alpha: float32 [B], exponent of the length penalty; negative for the export's.
            max_length: int32 [B], maximum tokens, EOS included, within the export's limits;
                0 or negative for only those limits.
            prefix: strings [B], beginning of every translation, cut at its limit; may be
                empty.
        """
        source, cut = self._codec.encode(text)
        ids = source.to_tensor(PAD_ID)
        limits = tf.where(max_length > 0, max_length, tf.int32.max)
        lengths = tf.cast(source.row_lengths(), tf.int32)
        prefix_ids, prefix_cut = self._codec.encode_prefix(prefix, lengths, limits)
        hypotheses = self._n_best(
            ids,
            # NaN is not above 0 either.
            tf.where(alpha >= 0, tf.minimum(alpha, MAX_ALPHA), self._decoding.alpha),
            prefix_ids.to_tensor(PAD_ID),
            limits,
        )
        cuts = {"source_cut": cut, "prefix_cut": prefix_cut}
        return self._n_best_outputs(hypotheses, _is_blank(source)) | cuts

    def _n_best_outputs(self, hypotheses: Hypotheses, blank: tf.Tensor) -> Outputs:
        batch, beams, length = tf.unstack(tf.shape(hypotheses.tokens))
        flat = tf.reshape(hypotheses.tokens, [batch * beams, length])
        translations = tf.reshape(self._tokenizer.detokenize(flat), [batch, beams])
        count = tf.math.count_nonzero(hypotheses.lengths, axis=1, dtype=tf.int32)
        blank_row = blank[:, tf.newaxis]
        return {
            "translations": tf.where(blank_row, "", translations),
            "scores": tf.where(blank_row, 0.0, hypotheses.scores),
            "log_probs": tf.where(blank_row, 0.0, hypotheses.log_probs),
            "num_tokens": tf.where(blank_row, 0, hypotheses.lengths),
            "count": tf.where(blank, 1, count),
        }

    def attention(self, text: tf.Tensor) -> Outputs:
        """Returns the best translation of each text, strings [B], with its attention.

        The weights, of each head and their mean, are those of the cross-attention in the layer
        that alignments are read from (see `decoding.alignment`).
        """
        source, cut = self._codec.encode(text)
        ids = source.to_tensor(PAD_ID)  # [B, S]
        hypotheses = self._search(ids)
        target = hypotheses.tokens[:, 0, : longest(hypotheses.lengths[:, 0])]  # [B, T]
        heads, nearest = self._attend(ids, target)
        blank = _is_blank(source)
        real = (target != PAD_ID) & ~blank[:, tf.newaxis]
        heads = tf.where(real[:, tf.newaxis, :, tf.newaxis], heads, 0.0)
        return {
            "translation": tf.where(blank, "", self._tokenizer.detokenize(target)),
            "source_pieces": self._pieces(ids, "source"),
            "target_pieces": tf.where(real, self._pieces(target, "target"), ""),
            "attention": tf.reduce_mean(heads, axis=1),
            "heads": heads,
            "alignment": tf.where(real & (target != EOS_ID), nearest, -1),
            "source_cut": cut,
        }

    def _heads_and_nearest(
        self, source: tf.Tensor, target: tf.Tensor
    ) -> tuple[tf.Tensor, tf.Tensor]:
        """Returns the weights [B, H, T, S] and alignments [B, T] of `attention`, from ids."""
        cross = self._engine.cross_weights(source, target)
        return cross, nearest_pieces(cross, source)

    def _pieces(self, ids: tf.Tensor, side: SideName) -> tf.Tensor:
        return tf.where(ids == PAD_ID, "", self._tokenizer.pieces(ids, side))

    def score(self, source: tf.Tensor, target: tf.Tensor) -> Outputs:
        """Returns the log-probabilities of targets [B] for sources [B], both strings."""
        tf.debugging.assert_equal(
            tf.size(source), tf.size(target), "`source` and `target` must have equal lengths."
        )
        limit = self._codec.target_limit
        source_ids, source_cut = self._codec.encode(source)
        target_ids, target_cut = self._codec.encode(target, limit, target=True)
        log_prob = self._log_probs(source_ids.to_tensor(PAD_ID), target_ids.to_tensor(PAD_ID))
        size = tf.cast(target_ids.row_lengths(), tf.int32)
        return {
            "log_prob": log_prob,
            "score": log_prob / length_penalty(size, self._decoding.alpha),
            "num_tokens": size,
            "source_cut": source_cut,
            "target_cut": target_cut,
        }


def _is_blank(source: tf.RaggedTensor) -> tf.Tensor:
    """Returns bool [B]: whether a text is blank, that is, only EOS."""
    return source.row_lengths() == 1


def _closed(
    ids: tf.Tensor, vocab_size: int, limit: int
) -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
    """Cuts rows at their first EOS or PAD, and replaces ids outside the vocabulary with UNK.

    Ids after EOS are never read, since a server may pad requests to one width with any value.

    Args:
        ids: int32 [B, any].
        vocab_size: V.
        limit: maximum tokens in a row, EOS included.

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
