"""Text to ids and back, within the length limits of a model and of its decoding.

B batch, S source length, N hypotheses of a sentence, L longest length limit.
"""

import logging
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID, DecodingConfig
from tf_transformer.data.text import SideName, utf8
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.beam_search import Hypotheses
from tf_transformer.decoding.interface import Translation, token_limits, warn_of_long

logger = logging.getLogger(__name__)

Ids = list[np.ndarray]
IDS = tf.TensorSpec([None, None], tf.int32)


class TextCodec:
    """Encodes sources, targets and prefixes; decodes hypotheses.

    Length limits are those of `decoding` and, unless None, of the model's positions:
    `longest_source` and `longest_target`. `source_limit` and `target_limit` are the maximum
    tokens of either side, EOS counted.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        longest_source: int | None,
        longest_target: int | None,
    ) -> None:
        self._tokenizer, self._decoding = tokenizer, decoding
        self._longest_source, self._longest_target = longest_source, longest_target
        limits = token_limits(decoding, longest_source, longest_target)
        self.source_limit, self.target_limit = limits

    @property
    def tag_words(self) -> int:
        """The number of words that the tokenizer puts before each source."""
        return len(self._tokenizer.tag.split())

    # --- Outside the graph ---------------------------------------------------------------

    def ids(
        self,
        texts: Sequence[str],
        side: SideName = "source",
        *,
        longest_trained: int | None = None,
    ) -> Ids:
        """Returns the ids of each text of a side with EOS; warns if some are cut.

        So it does if others have more tokens than `longest_trained`, unless None. A target that
        a search spelt otherwise than the tokenizer does keeps the search's ids.
        """
        name, limit, learned = "texts", self.source_limit, self._longest_source
        rows = self._tokenizer.ids(texts, side)
        if side == "target":
            name, limit, learned = "targets", self.target_limit, self._longest_target
            rows = [self._searched(text) or ids for text, ids in zip(texts, rows, strict=True)]
        if count := sum(len(ids) >= limit for ids in rows):  # EOS would exceed it
            why = ", where the trained positions end" if limit == learned else ""
            logger.warning("%s cut at %d tokens%s: %d", name, limit, why, count)
        warn_of_long([len(ids) + 1 for ids in rows if len(ids) < limit], longest_trained)
        return [np.array([*ids[: limit - 1], EOS_ID], "int32") for ids in rows]

    def _searched(self, text: str) -> list[int]:
        """Returns the ids with which a search spelt a translation, without EOS, or [].

        Another model's ids count only if they spell the same text here.
        """
        tokens = np.array(getattr(text, "tokens", ()), np.int64)
        if not tokens.size or tokens.max() >= self._tokenizer.vocab_size:
            return []
        return tokens.tolist()[:-1] if self._tokenizer.texts([tokens]) == [text] else []

    def prefix_ids(self, prefixes: Sequence[str], sources: Ids) -> Ids:
        """Returns the ids of each prefix, without EOS; warns if some were cut."""
        lengths = tf.constant([len(source) for source in sources], tf.int32)
        ragged, cut = self.encode_prefix([*map(utf8, prefixes)], lengths)
        if count := int(tf.math.count_nonzero(cut)):
            logger.warning("prefixes cut at the length limit of their translation: %d", count)
        return [np.asarray(ids, "int32") for ids in ragged.numpy()]

    def fits(self, texts: Sequence[str], side: SideName = "source") -> list[bool]:
        """Tells of each text of a side whether no length limit cuts it."""
        limit = self.source_limit if side == "source" else self.target_limit
        return [len(ids) < limit for ids in self._tokenizer.ids(texts, side)]  # EOS follows

    def length_limits(self, texts: Sequence[str]) -> list[int]:
        """Returns the maximum number of tokens, EOS counted, in each text's translation."""
        if not texts:
            return []
        lengths = [min(len(ids) + 1, self.source_limit) for ids in self._tokenizer.ids(texts)]
        return np.asarray(self.limits(np.array(lengths, np.int32))).tolist()

    def pieces(self, ids: np.ndarray, side: SideName) -> list[str]:
        """Returns the subword pieces of one row of ids of a side."""
        return [piece.decode("utf-8") for piece in self._tokenizer.pieces(ids, side).numpy()]

    def decode(self, hypotheses: Hypotheses) -> list[list[Translation]]:
        """Returns the hypotheses of each sentence as text, without fillers unless all are."""
        batch, n, length = hypotheses.tokens.shape
        ids = np.reshape(hypotheses.tokens, (batch * n, length))
        texts = self._tokenizer.texts(ids)
        columns = (
            np.reshape(column, -1).tolist()
            for column in (hypotheses.scores, hypotheses.log_probs, hypotheses.lengths)
        )
        rows = zip(texts, *columns, [()] * len(texts), ids.tolist(), strict=True)
        decoded = [Translation(*row) for row in rows]
        ranked = (decoded[row * n : (row + 1) * n] for row in range(batch))
        return [[each for each in row if each.num_tokens] or row[:1] for row in ranked]

    # --- In the graph --------------------------------------------------------------------

    def encode(
        self, texts: tf.Tensor, limit: int | None = None, *, target: bool = False
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Encodes strings [B] as int32 ids [B, None] with EOS; and tells which were cut, [B].

        The limit counts EOS; it is `source_limit` by default.
        """
        side: SideName = "target" if target else "source"
        return self._tokenizer.encode(texts, side, limit or self.source_limit)

    def encode_prefix(
        self,
        prefixes: tf.Tensor,
        source_lengths: tf.Tensor,
        max_lengths: tf.Tensor | None = None,
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Encodes prefixes of translations, strings [B], as ids [B, None] without EOS.

        Also returns bool [B]: whether a prefix was cut at the limit of its translation. Lengths
        and limits are those of `limits`.
        """
        closed, cut = self.encode(prefixes, self.target_limit, target=True)
        lengths = tf.cast(closed.row_lengths(), tf.int32)
        limits = self.limits(source_lengths, max_lengths)
        kept = tf.minimum(lengths, limits) - 1  # leaves room for EOS
        return tf.RaggedTensor.from_tensor(closed.to_tensor(), kept), cut | (lengths > limits)

    def limits(
        self, source_lengths: tf.Tensor | np.ndarray, max_lengths: tf.Tensor | None = None
    ) -> tf.Tensor | np.ndarray:
        """Returns the maximum number of tokens in each translation, int32 [B], EOS counted.

        Source lengths [B] count EOS too; `max_lengths` [B] may only lower the configured limit.
        """
        limits = source_lengths + self._decoding.max_extra_length
        for limit in (self._decoding.max_length, self._longest_target):
            if limit:
                limits = tf.minimum(limits, limit)
        if max_lengths is not None:
            limits = tf.clip_by_value(max_lengths, 1, limits)
        return limits

    def min_lengths(self, source_lengths: tf.Tensor | np.ndarray) -> tf.Tensor:
        """Returns the minimum number of tokens, as `limits` the maximum, which goes first.

        It is at least 2, EOS and another, unless the source is blank: under a low limit, the
        empty hypothesis would often be the best.
        """
        return tf.maximum(tf.minimum(source_lengths, 2), self._decoding.min_length)
