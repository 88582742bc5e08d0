"""Text to ids and back, within the length limits of a model and of its decoding.

B batch, S source length, N hypotheses of a sentence, L longest length limit.
"""

import functools
import logging
from collections.abc import Iterable, Sequence
from typing import Self

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID, DecodingConfig
from tf_transformer.data.text import SideName, utf8
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.beam_search import Hypotheses
from tf_transformer.decoding.plausibility import looks_wrong

logger = logging.getLogger(__name__)

Ids = list[np.ndarray]
IDS = tf.TensorSpec([None, None], tf.int32)


class Translation(str):
    """A translation: a `str` that carries what the model computed for it.

    Attributes:
        score: log_prob / length_penalty(num_tokens, alpha), by which the search ranks; that of
            samples is log_prob.
        log_prob: natural logarithm of its probability, summed over the tokens.
        num_tokens: number of tokens, EOS counted; 0 for the empty translation of a blank text.
        word_probs: probability of each word between spaces, if the translation was scored.
        tokens: ids of its tokens, EOS included, which `score`, `align` and `attention` of the
            same model read; () if an export translated it.
        source: the text that it translates; None if it stands for itself.
        is_long: whether the source has more tokens than any in training.

    Example:
        >>> translation = Translation("Guten Morgen.", -0.5, -0.6, num_tokens=4)
        >>> print(translation, translation.log_prob)
        Guten Morgen. -0.6
    """

    score: float
    log_prob: float
    num_tokens: int
    word_probs: tuple[float, ...]
    tokens: tuple[int, ...]
    source: str | None = None
    is_long: bool = False

    def __new__(
        cls, text: str, score: float, log_prob: float, num_tokens: int, word_probs=(), tokens=()
    ) -> Self:
        """Returns `text` with its figures; 0 in `word_probs` and `tokens` is padding."""
        self = super().__new__(cls, text)
        self.score, self.log_prob, self.num_tokens = score, log_prob, num_tokens
        self.word_probs = tuple(filter(None, word_probs))
        self.tokens = tuple(filter(None, tokens))
        return self

    def with_text(self, text: str) -> Self:
        """Returns another text with these figures."""
        figures = self.score, self.log_prob, self.num_tokens
        return type(self)(text, *figures, self.word_probs, self.tokens)

    @functools.cached_property
    def warnings(self) -> tuple[str, ...]:
        """Reasons why it looks wrong, () if none; see `decoding.plausibility`."""
        return () if self.source is None else looks_wrong(self.source, self, self.is_long)

    def copies(self, source: str) -> bool:
        """Tells whether it is the source itself."""
        return self.strip() == source.strip()

    def is_less_probable_than(self, log_prob: float) -> bool:
        """Compares the mean log-probability of its tokens with a limit."""
        return self.log_prob < log_prob * self.num_tokens

    def __getnewargs__(self):
        """Returns the arguments to copy and unpickle it with."""
        return str(self), self.score, self.log_prob, self.num_tokens


class TranslatedText(str):
    """A translated document, with its sentences as pairs of source and translation."""

    sentences: list[tuple[str, Translation]]


def set_sources(
    sources: Iterable[str],
    ranked: Iterable[Iterable[Translation]],
    tokens: Sequence[int],
    longest_trained: int | None,
) -> None:
    """Tells the translations of each source, which has `tokens`, with EOS, what they are of."""
    for source, translations, size in zip(sources, ranked, tokens, strict=True):
        for each in translations:
            each.source, each.is_long = source, size > (longest_trained or size)


def warn_of_long(lengths: Sequence[int], longest_trained: int | None) -> None:
    """Warns if texts have more tokens, with EOS, than the longest source in training."""
    count = sum(length > longest_trained for length in lengths) if longest_trained else 0
    if count:
        message = "texts longer than any in training, %d tokens: %d"
        logger.warning(message, longest_trained, count)


class TextCodec:
    """Encodes sources, targets and prefixes; decodes hypotheses.

    Length limits are those of `decoding` and, unless None, of the model's positions:
    `longest_source` and `longest_target`. `longest_trained` are the tokens of the longest
    source in training; None if unknown.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        decoding: DecodingConfig,
        longest_source: int | None,
        longest_target: int | None,
        longest_trained: int | None = None,
    ) -> None:
        self._tokenizer, self._decoding = tokenizer, decoding
        self._longest_source, self._longest_target = longest_source, longest_target
        self._longest_trained = longest_trained

    @property
    def source_limit(self) -> int:
        """The maximum number of tokens in a source, EOS counted."""
        limit = self._decoding.max_source_length
        return min(limit, self._longest_source or limit)

    @property
    def tag_words(self) -> int:
        """The number of words that the tokenizer puts before each source."""
        return len(self._tokenizer.tag.split())

    @property
    def target_limit(self) -> int:
        """The maximum number of tokens in a target, EOS counted: that of the longest source."""
        limit = self._decoding.max_source_length + self._decoding.max_extra_length
        return min(limit, self._longest_target or limit)

    # --- Outside the graph ---------------------------------------------------------------

    def ids(self, texts: Sequence[str], side: SideName = "source") -> Ids:
        """Returns the ids of each text of a side with EOS; warns if some are cut or long.

        A target that a search spelt otherwise than the tokenizer does keeps the search's ids.
        """
        name, limit, learned = "texts", self.source_limit, self._longest_source
        rows = self._tokenizer.ids(texts, side)
        if side == "target":
            name, limit, learned = "targets", self.target_limit, self._longest_target
            rows = [self._searched(text) or ids for text, ids in zip(texts, rows, strict=True)]
        if count := sum(len(ids) >= limit for ids in rows):  # EOS would exceed it
            why = ", where the trained positions end" if limit == learned else ""
            logger.warning("%s cut at %d tokens%s: %d", name, limit, why, count)
        if most := side == "source" and self._longest_trained:
            warn_of_long([len(ids) + 1 for ids in rows if len(ids) < limit], most)
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
