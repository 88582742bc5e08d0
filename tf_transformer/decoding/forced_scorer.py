"""Log-probability, alignment and attention of given translations, by forced decoding.

B batch, S source and T target pieces, EOS included; N layers of a stack, H heads.
"""

import functools
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import numpy as np
import tensorflow as tf

from tf_transformer.config import BOS_ID, PAD_ID, DecodingConfig
from tf_transformer.decoding.alignment import (
    Alignment,
    Attention,
    default_layer,
    nearest_pieces,
    word_pairs,
    words,
)
from tf_transformer.decoding.batches import Progress, in_batches, padded
from tf_transformer.decoding.ensemble import Ensemble, only_model
from tf_transformer.decoding.hypotheses import Translation, length_penalty
from tf_transformer.decoding.text_codec import IDS, TextCodec
from tf_transformer.models.transformer import Transformer


class ForcedScorer:
    """Scores and aligns given translations, and returns their attention.

    Args:
        model: a trained `Transformer`, or an `Ensemble` of them.
        codec: encodes sources and targets.
        decoding: alpha, and tokens per batch.
    """

    def __init__(
        self, model: Transformer | Ensemble, codec: TextCodec, decoding: DecodingConfig
    ) -> None:
        self._model = model
        self._codec = codec
        self._decoding = decoding
        self._log_probs_of = tf.function(self.log_probs, [IDS, IDS], autograph=False)
        self._weights_of = tf.function(self._weights, [IDS, IDS], autograph=False)
        self._nearest_of = functools.cache(self._compile_nearest)

    def score(
        self, sources: Sequence[str], targets: Sequence[str], progress: Progress | None = None
    ) -> list[Translation]:
        """Returns each target with its log-probability.

        It equals the one from `BatchTranslator.translate` for the same tokens. Targets are cut
        at the longest possible translation: `max_source_length` + `max_extra_length` tokens.

        Args:
            sources: sentences.
            targets: their translations, one for each source.
            progress: called with the number of sentences done so far.
        """
        forced = self._forced(self._log_probs_of, sources, targets, progress)
        log_probs = [float(log_prob) for _, _, log_prob in forced]
        lengths = [len(ids) for _, ids, _ in forced]
        scores = tf.constant(log_probs) / length_penalty(lengths, self._decoding.alpha)
        columns = (targets, scores.numpy().tolist(), log_probs, lengths)
        return [Translation(*row) for row in zip(*columns, strict=True)]

    def align(
        self,
        sources: Sequence[str],
        targets: Sequence[str],
        progress: Progress | None = None,
        *,
        layer: int | None = None,
    ) -> list[Alignment]:
        """Returns the aligned words of each pair.

        Alignments come from the cross-attention, see `alignment.nearest_pieces`. Words are
        separated by spaces.

        Args:
            sources: sentences.
            targets: their translations, one for each source.
            progress: called with the number of sentences done so far.
            layer: the decoder layer, from 0; `alignment.default_layer` if None.

        Raises:
            ValueError: if the model has no such layer, or is an ensemble.
        """
        forced = self._forced(self._nearest_of(layer), sources, targets, progress)
        tag = self._codec.tag_words
        alignments = []
        texts = zip(sources, targets, strict=True)
        for pair, (source, target, nearest) in zip(texts, forced, strict=True):
            pieces = (
                self._codec.pieces(source[:-1], "source"),
                self._codec.pieces(target[:-1], "target"),
            )
            aligned = word_pairs(*pieces, nearest[: len(target) - 1])
            links = [(word - tag, other) for word, other in aligned if word >= tag]
            alignments.append(Alignment(*pair, links, *map(words, pair, pieces)))
        return alignments

    def attention(self, sources: Sequence[str], targets: Sequence[str]) -> list[Attention]:
        """Returns all attention weights of one forced pass over each pair."""
        return [
            Attention(
                source=self._codec.pieces(source, "source"),
                target=self._codec.pieces(target, "target"),
                encoder=weights["encoder"][..., : len(source), : len(source)],
                decoder=weights["decoder"][..., : len(target), : len(target)],
                cross=weights["cross"][..., : len(target), : len(source)],
            )
            for source, target, weights in self._forced(self._weights_of, sources, targets)
        ]

    def _forced(
        self,
        function: Callable,
        sources: Sequence[str],
        targets: Sequence[str],
        progress: Progress | None = None,
    ) -> list[tuple[np.ndarray, np.ndarray, Any]]:
        """Returns, for each pair, its source and target ids and its part of the results.

        `function` maps a batch of ids, [B, S] and [B, T], to tensors with dimension 0 = B.
        """
        source_ids = self._codec.source_ids(sources)
        target_ids = self._codec.target_ids(targets)
        pairs = list(zip(source_ids, target_ids, strict=True))
        lengths = [max(map(len, pair)) for pair in pairs]
        positions = self._decoding.batch_tokens // self._decoding.beam_size

        def compute(rows: list[int]) -> Any:
            batch = zip(*(pairs[row] for row in rows), strict=True)
            return tf.nest.map_structure(lambda t: t.numpy(), function(*map(padded, batch)))

        results: dict[int, Any] = {}
        for rows, arrays in in_batches(lengths, positions, compute, progress):
            for index, row in enumerate(rows):
                results[row] = tf.nest.map_structure(itemgetter(index), arrays)
        return [(*pair, results[row]) for row, pair in enumerate(pairs)]

    # --- In the graph: source and labels, int32 [B, S] and [B, T] ------------------------

    def log_probs(self, source: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the summed log-probability of the labels, [B]."""
        logits = self._model({"source": source, "target": _inputs(labels)}, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return -tf.reduce_sum(tf.where(labels == PAD_ID, 0.0, losses), axis=1)

    def _weights(self, source: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        """Returns all attention weights by name, with dimension 0 = B."""
        weights = only_model(self._model).attention_weights(source, _inputs(labels))
        return {name: tf.stack(tf.unstack(layers), 1) for name, layers in weights.items()}

    def cross_weights(
        self, source: tf.Tensor, labels: tf.Tensor, layer: int | None = None
    ) -> tf.Tensor:
        """Returns the cross-attention of one decoder layer, [B, H, T, S].

        Args:
            source: int32 [B, S].
            labels: int32 [B, T].
            layer: from 0; `alignment.default_layer` if None.

        Raises:
            ValueError: if the model has no such layer, or is an ensemble.
        """
        model, layer = only_model(self._model), self._layer(layer)
        return model.cross_attention_weights(source, _inputs(labels), layer)

    def _layer(self, layer: int | None) -> int:
        num_layers = only_model(self._model).config.num_decoder_layers
        layer = default_layer(num_layers) if layer is None else layer
        if not 0 <= layer < num_layers:
            raise ValueError(
                f"`layer` must be from 0 to {num_layers - 1}. Received: layer={layer}."
            )
        return layer

    def _compile_nearest(self, layer: int | None) -> Callable:
        layer = self._layer(layer)

        def nearest(source: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
            return nearest_pieces(self.cross_weights(source, labels, layer), source)

        return tf.function(nearest, [IDS, IDS], autograph=False)


def _inputs(labels: tf.Tensor) -> tf.Tensor:
    """Returns the decoder's inputs: the labels shifted right, BOS first."""
    return tf.pad(labels, [[0, 0], [1, 0]], constant_values=BOS_ID)[:, :-1]
