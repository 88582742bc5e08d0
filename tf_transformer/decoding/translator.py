"""Text in, text out: tokenise, batch by length, search, detokenise, restore the order."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.beam_search import Hypotheses, beam_search, length_penalty
from tf_transformer.models.transformer import Transformer

logger = logging.getLogger(__name__)

Progress = Callable[[int], None]


@dataclass(frozen=True)
class Hypothesis:
    """One translation; `score` is log_prob / length_penalty(num_tokens), EOS counted."""

    text: str
    score: float
    log_prob: float
    num_tokens: int


class Translator:
    """Translates and scores text with a model and its tokenizer.

    Args:
        model: a trained `Transformer`.
        tokenizer: the one it was trained with.
        decoding: beam size, alpha, lengths and tokens per batch; the paper's by default.
        num_hypotheses: translations to return for each sentence, at most the beam size.

    Raises:
        ValueError: if the tokenizer's vocabulary is not the model's.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizer: Tokenizer,
        decoding: DecodingConfig | None = None,
        num_hypotheses: int = 1,
    ) -> None:
        if tokenizer.vocab_size != model.arguments["vocab_size"]:
            raise ValueError(
                "The tokenizer must have the model's vocabulary. Received: "
                f"tokenizer {tokenizer.vocab_size}, model {model.arguments['vocab_size']}."
            )
        self.model = model
        self.tokenizer = tokenizer
        self.decoding = decoding or DecodingConfig()
        self.num_hypotheses = num_hypotheses
        ids = tf.TensorSpec([None, None], tf.int32)
        self._search = tf.function(self.search, [ids], autograph=False)
        self._force = tf.function(self._force_ids, [ids, ids], autograph=False)

    def translate(
        self, texts: Sequence[str], progress: Progress | None = None
    ) -> list[list[Hypothesis]]:
        """The best hypotheses of each text, best first; a blank text gives blank ones.

        Args:
            texts: any number of sentences.
            progress: called with the number of sentences done so far.
        """
        done = 0
        blank = [Hypothesis("", 0.0, 0.0, 0)] * self.num_hypotheses
        results = [blank] * len(texts)
        sources = self._encode(texts)
        for rows in self._batches([len(source) for source in sources]):
            batch = _padded([sources[row] for row in rows])
            for row, hypotheses in zip(rows, self._hypotheses(batch), strict=True):
                if len(sources[row]) > 1:  # EOS alone: the text was blank
                    results[row] = hypotheses
            done += len(rows)
            if progress:
                progress(done)
        return results

    def score(
        self, sources: Sequence[str], targets: Sequence[str], progress: Progress | None = None
    ) -> list[Hypothesis]:
        """Log-probability of each given target, by forced decoding.

        Equal to what `translate` reports for the same tokens.
        """
        done = 0
        results: list[Hypothesis | None] = [None] * len(sources)
        source_ids, target_ids = self._encode(sources), self._encode(targets)
        lengths = [max(map(len, pair)) for pair in zip(source_ids, target_ids, strict=True)]
        for rows in self._batches(lengths):
            target_batch = _padded([target_ids[row] for row in rows])
            log_probs = self._force(
                _padded([source_ids[row] for row in rows]), target_batch
            ).numpy()
            for row, log_prob in zip(rows, log_probs, strict=True):
                size = len(target_ids[row])
                score = log_prob / length_penalty(size, self.decoding.alpha).numpy()
                results[row] = Hypothesis(targets[row], float(score), float(log_prob), size)
            done += len(rows)
            if progress:
                progress(done)
        return results

    def _encode(self, texts: Sequence[str]) -> list[np.ndarray]:
        if not texts:
            return []
        ragged, cut = self.encode(tf.constant(list(texts), tf.string))
        if number := int(tf.math.count_nonzero(cut)):
            logger.warning("texts cut at %d tokens: %d", self._source_limit(), number)
        return [np.asarray(ids, "int32") for ids in ragged.numpy()]

    def encode(self, texts: tf.Tensor) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Strings [B] to int32 ids [B, None] with EOS, in the graph.

        Returns:
            The ids, and bool [B]: whether a text was cut at `decoding.max_source_length`, or
            at the learned positions that the model has.
        """
        ids = self.tokenizer.tokenize(texts)
        limit = self._source_limit() - 1  # and EOS
        cut = ids.row_lengths() > limit
        ends = tf.fill([ids.nrows(), 1], EOS_ID)
        return tf.concat([ids[:, :limit], tf.RaggedTensor.from_tensor(ends)], axis=1), cut

    def _source_limit(self) -> int:
        longest = self.decoding.max_source_length
        return min(longest, self._position_limit() or longest)

    def _position_limit(self) -> int | None:
        arguments = self.model.arguments
        return arguments["max_length"] if arguments["positions"] == "learned" else None

    def _batches(self, lengths: Sequence[int]) -> Iterator[list[int]]:
        """Groups rows of like length, longest first, about `batch_tokens` positions each."""
        order = sorted(range(len(lengths)), key=lambda row: -lengths[row])
        start = 0
        while start < len(order):
            longest = lengths[order[start]]
            size = max(1, self.decoding.batch_tokens // (longest * self.decoding.beam_size))
            yield order[start : start + size]
            start += size

    def _hypotheses(self, source: np.ndarray) -> list[list[Hypothesis]]:
        found = self._search(source)
        batch, number, length = found.tokens.shape
        flat = tf.reshape(found.tokens, (batch * number, length))
        texts = [text.decode("utf-8") for text in self.tokenizer.detokenize(flat).numpy()]
        columns = (found.scores, found.log_probs, found.lengths)
        scores, log_probs, sizes = (tf.reshape(column, [-1]).numpy() for column in columns)
        flat_hypotheses = [
            Hypothesis(text, float(score), float(log_prob), int(size))
            for text, score, log_prob, size in zip(texts, scores, log_probs, sizes, strict=True)
        ]
        return [flat_hypotheses[row * number : (row + 1) * number] for row in range(batch)]

    def search(self, source: tf.Tensor) -> Hypotheses:
        """Beam search in the graph: ids with EOS and padding [B, S] to `Hypotheses`."""
        lengths = tf.math.count_nonzero(source != PAD_ID, axis=1, dtype=tf.int32)
        max_lengths = lengths + self.decoding.max_extra_length
        if limit := self._position_limit():
            max_lengths = tf.minimum(max_lengths, limit)
        return beam_search(
            self.model.step_function(),
            self.model.initial_cache(source),
            max_lengths,
            beam_size=self.decoding.beam_size,
            num_hypotheses=self.num_hypotheses,
            alpha=self.decoding.alpha,
        )

    def _force_ids(self, source: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """[B, S], [B, T] -> the summed log-probability of the labels, [B]."""
        target = tf.pad(labels[:, :-1], [[0, 0], [1, 0]], constant_values=BOS_ID)
        logits = self.model({"source": source, "target": target}, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return -tf.reduce_sum(tf.where(labels == PAD_ID, 0.0, losses), axis=1)


def _padded(rows: Sequence[np.ndarray]) -> np.ndarray:
    """int32 [B, longest], PAD after each row."""
    batch = np.full((len(rows), max(map(len, rows))), PAD_ID, "int32")
    for line, row in zip(batch, rows, strict=True):
        line[: len(row)] = row
    return batch
