"""Given translations: their log-probability, alignment and attention, by forced decoding.

B batch, S and T pieces of source and target with EOS, N layers, H heads.
"""

import functools
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, EOS_ID, PAD_ID, DecodingConfig
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.decoding.alignment import default_layer, nearest_pieces, word_pairs
from tf_transformer.decoding.batches import by_length, padded
from tf_transformer.decoding.ensemble import Ensemble
from tf_transformer.decoding.search import length_penalty
from tf_transformer.models.transformer import Transformer

logger = logging.getLogger(__name__)

Progress = Callable[[int], None]
Ids = list[np.ndarray]
IDS = tf.TensorSpec([None, None], tf.int32)


@dataclass(frozen=True)
class Hypothesis:
    """One translation; `score` is log_prob / length_penalty(num_tokens), EOS counted."""

    text: str
    score: float
    log_prob: float
    num_tokens: int


@dataclass(frozen=True)
class Attention:
    """What a model attends to while it is forced to a translation.

    Row t of `decoder` and `cross` is the step that predicts target piece t: it reads the
    piece before, and BOS first.
    """

    source: list[str]  # S pieces, the last is "</s>"
    target: list[str]  # T pieces, the last is "</s>"
    encoder: np.ndarray  # float32 [N, H, S, S]
    decoder: np.ndarray  # float32 [N, H, T, T]
    cross: np.ndarray  # float32 [N, H, T, S]


class ForcedDecoder:
    """Scores, aligns and looks into given translations, in batches of like length.

    Args:
        model: a trained `Transformer`, or an `Ensemble` of them.
        tokenizer: the one it was trained with.
        decoding: alpha, lengths and tokens per batch.

    Raises:
        ValueError: if the tokenizer's vocabulary is not the model's.
    """

    def __init__(
        self, model: Transformer | Ensemble, tokenizer: Tokenizer, decoding: DecodingConfig
    ) -> None:
        if tokenizer.vocab_size != model.vocab_size:
            raise ValueError(
                "The tokenizer must have the model's vocabulary. Received: "
                f"tokenizer {tokenizer.vocab_size}, model {model.vocab_size}."
            )
        self.model = model
        self.tokenizer = tokenizer
        self.decoding = decoding
        self._log_probs_of = tf.function(self.log_probs, [IDS, IDS], autograph=False)
        self._weights_of = tf.function(self.weights, [IDS, IDS], autograph=False)
        self._nearest_of = functools.cache(self._compile_nearest)

    def score(
        self, sources: Sequence[str], targets: Sequence[str], progress: Progress | None = None
    ) -> list[Hypothesis]:
        """Log-probability of each given target.

        Equal to what `Translator.translate` reports for the same tokens. A target is cut where
        the longest translation would be: `max_source_length` + `max_extra_length` tokens.

        Args:
            sources, targets: equally many sentences.
            progress: called with the number of sentences done so far.
        """
        results: list[Hypothesis | None] = [None] * len(sources)
        for rows, _, ids, log_probs in self._force(
            self._log_probs_of, sources, targets, progress
        ):
            sizes = [len(one) for one in ids]
            scores = log_probs / length_penalty(sizes, self.decoding.alpha)
            columns = (scores.numpy().tolist(), log_probs.numpy().tolist(), sizes)
            for row, *figures in zip(rows, *columns, strict=True):
                results[row] = Hypothesis(targets[row], *figures)
        return results

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        progress: Progress | None = None,
        *,
        layer: int | None = None,
    ) -> list[list[tuple[int, int]]]:
        """The words (source, target) of each pair that belong together, counted from 0.

        Read off the cross-attention, see `alignment.nearest_pieces`. Words are what spaces
        divide.

        Args:
            sources, targets: equally many sentences.
            progress: called with the number of sentences done so far.
            layer: the decoder layer, from 0; `alignment.default_layer` if None.

        Raises:
            ValueError: if the model has no such layer, or is an ensemble.
        """
        results: list[list[tuple[int, int]]] = [[]] * len(sources)
        for rows, source_ids, target_ids, nearest in self._force(
            self._nearest_of(layer), sources, targets, progress
        ):
            columns = (rows, source_ids, target_ids, nearest.numpy())
            for row, source, target, places in zip(*columns, strict=True):
                pieces = self._pieces(source[:-1]), self._pieces(target[:-1])
                results[row] = word_pairs(*pieces, places[: len(target) - 1])
        return results

    def attention(self, sources: Sequence[str], targets: Sequence[str]) -> list[Attention]:
        """All attention weights of one pass over each pair."""
        results: list[Attention | None] = [None] * len(sources)
        for rows, source_ids, target_ids, weights in self._force(
            self._weights_of, sources, targets
        ):
            arrays = {name: tensor.numpy() for name, tensor in weights.items()}
            columns = zip(rows, source_ids, target_ids, strict=True)
            for place, (row, source, target) in enumerate(columns):
                s, t = len(source), len(target)
                results[row] = Attention(
                    source=self._pieces(source),
                    target=self._pieces(target),
                    encoder=arrays["encoder"][:, place, :, :s, :s],
                    decoder=arrays["decoder"][:, place, :, :t, :t],
                    cross=arrays["cross"][:, place, :, :t, :s],
                )
        return results

    def encode(
        self, texts: tf.Tensor, limit: int | None = None, *, target: bool = False
    ) -> tuple[tf.RaggedTensor, tf.Tensor]:
        """Strings [B] to int32 ids [B, None] with EOS, in the graph.

        Args:
            texts: strings [B].
            limit: the most tokens, with EOS.
            target: whether they are of the target language.

        Returns:
            The ids, and bool [B]: whether a text was cut at `limit` tokens; by default at
            `decoding.max_source_length`, or where learned positions end.
        """
        tokenizer = self.tokenizer
        ids = (tokenizer.tokenize_target if target else tokenizer.tokenize)(texts)
        limit = (limit or self.source_limit) - 1  # and EOS
        cut = ids.row_lengths() > limit
        ends = tf.fill([ids.nrows(), 1], EOS_ID)
        return tf.concat([ids[:, :limit], tf.RaggedTensor.from_tensor(ends)], axis=1), cut

    @property
    def source_limit(self) -> int:
        """The most tokens of a source, with EOS."""
        limit = self.decoding.max_source_length
        return min(limit, self.model.longest_source or limit)

    @property
    def target_limit(self) -> int:
        """The most tokens of a target, with EOS: what the longest source may become."""
        limit = self.decoding.max_source_length + self.decoding.max_extra_length
        return min(limit, self.model.longest_target or limit)

    def _ids(self, texts: Sequence[str], limit: int, name: str, *, target: bool = False) -> Ids:
        """The ids of each text with EOS, as `encode`; says how many `name` were cut."""
        if not texts:
            return []
        strings = tf.constant(list(texts), tf.string)
        ragged, cut = self.encode(strings, limit, target=target)
        if number := int(tf.math.count_nonzero(cut)):
            learned = self.model.longest_target if target else self.model.longest_source
            why = ", where the trained positions end" if limit == learned else ""
            logger.warning("%s cut at %d tokens%s: %d", name, limit, why, number)
        return [np.asarray(ids, "int32") for ids in ragged.numpy()]

    def _pieces(self, ids: np.ndarray) -> list[str]:
        return [piece.decode("utf-8") for piece in self.tokenizer.pieces(ids).numpy()]

    def _force(
        self,
        function: Callable,
        sources: Sequence[str],
        targets: Sequence[str],
        progress: Progress | None = None,
    ) -> Iterator[tuple[list[int], Ids, Ids, tf.Tensor]]:
        """Rows, ids of source and target, and what the function makes of them, by batch."""
        source_ids = self._ids(sources, self.source_limit, "texts")
        target_ids = self._ids(targets, self.target_limit, "targets", target=True)
        lengths = [max(map(len, pair)) for pair in zip(source_ids, target_ids, strict=True)]
        positions = self.decoding.batch_tokens // self.decoding.beam_size
        done = 0
        for rows in by_length(lengths, positions):
            batch = [source_ids[row] for row in rows], [target_ids[row] for row in rows]
            yield rows, *batch, function(padded(batch[0]), padded(batch[1]))
            done += len(rows)
            if progress:
                progress(done)

    # --- In the graph: source and labels, int32 [B, S] and [B, T] ------------------------

    def log_probs(self, source: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The summed log-probability of the labels, [B]."""
        logits = self.model({"source": source, "target": _inputs(labels)}, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return -tf.reduce_sum(tf.where(labels == PAD_ID, 0.0, losses), axis=1)

    def weights(self, source: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        """What `attention_weights` of the model returns for them."""
        return self._only_model().attention_weights(source, _inputs(labels))

    def cross_weights(
        self, source: tf.Tensor, labels: tf.Tensor, layer: int | None = None
    ) -> tf.Tensor:
        """The cross-attention of one decoder layer, [B, H, T, S].

        Args:
            source, labels: int32 [B, S] and [B, T].
            layer: from 0; `alignment.default_layer` if None.

        Raises:
            ValueError: if the model has no such layer, or is an ensemble.
        """
        model, layer = self._only_model(), self._layer(layer)
        return model.cross_attention_weights(source, _inputs(labels), layer)

    def _layer(self, layer: int | None) -> int:
        num_layers = self._only_model().config.num_layers
        layer = default_layer(num_layers) if layer is None else layer
        if not 0 <= layer < num_layers:
            raise ValueError(
                f"`layer` must be one of the model's {num_layers}. Received: layer={layer}."
            )
        return layer

    def _only_model(self) -> Transformer:
        if isinstance(self.model, Ensemble):
            raise ValueError("`model` must be one model to look into. Received: an ensemble.")
        return self.model

    def _compile_nearest(self, layer: int | None) -> Callable:
        layer = self._layer(layer)

        def nearest(source: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            return nearest_pieces(self.cross_weights(source, labels, layer), source)

        return tf.function(nearest, [IDS, IDS], autograph=False)


def _inputs(labels: tf.Tensor) -> tf.Tensor:
    """What the decoder reads to predict the labels: BOS first, and not the last of them."""
    return tf.pad(labels, [[0, 0], [1, 0]], constant_values=BOS_ID)[:, :-1]
