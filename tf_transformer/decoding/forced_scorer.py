"""Log-probability, alignment and attention of given translations, by forced decoding.

B batch, S source and T target pieces, EOS included; N layers of a stack, H heads.
"""

import functools
from collections.abc import Callable, Iterator, Sequence

import tensorflow as tf

from tf_transformer.config import BOS_ID, PAD_ID, DecodingConfig
from tf_transformer.decoding.alignment import (
    Alignment,
    Attention,
    default_layer,
    nearest_pieces,
    word_pairs,
)
from tf_transformer.decoding.batches import Progress, in_batches, padded
from tf_transformer.decoding.ensemble import Ensemble, only_model
from tf_transformer.decoding.hypotheses import Hypothesis, length_penalty
from tf_transformer.decoding.text_codec import IDS, Ids, TextCodec
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
    ) -> list[Hypothesis]:
        """Returns each target with its log-probability.

        It equals the one from `BatchTranslator.translate` for the same tokens. Targets are cut
        at the longest possible translation: `max_source_length` + `max_extra_length` tokens.

        Args:
            sources: sentences.
            targets: their translations, one for each source.
            progress: called with the number of sentences done so far.
        """
        results: dict[int, Hypothesis] = {}
        for rows, _, ids, log_probs in self._forced_batches(
            self._log_probs_of, sources, targets, progress
        ):
            lengths = [len(target) for target in ids]
            scores = log_probs / length_penalty(lengths, self._decoding.alpha)
            columns = (scores.numpy().tolist(), log_probs.numpy().tolist(), lengths)
            for row, *figures in zip(rows, *columns, strict=True):
                results[row] = Hypothesis(targets[row], *figures)
        return [results[row] for row in range(len(sources))]

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
        word_links: dict[int, list[tuple[int, int]]] = {}
        for rows, source_ids, target_ids, nearest in self._forced_batches(
            self._nearest_of(layer), sources, targets, progress
        ):
            columns = (rows, source_ids, target_ids, nearest.numpy())
            for row, source, target, indices in zip(*columns, strict=True):
                aligned = word_pairs(
                    self._codec.pieces(source[:-1], "source"),
                    self._codec.pieces(target[:-1], "target"),
                    indices[: len(target) - 1],
                )
                tag = self._codec.tag_words
                word_links[row] = [
                    (word - tag, other) for word, other in aligned if word >= tag
                ]
        texts = enumerate(zip(sources, targets, strict=True))
        return [Alignment(*pair, word_links[row]) for row, pair in texts]

    def attention(self, sources: Sequence[str], targets: Sequence[str]) -> list[Attention]:
        """Returns all attention weights of one forced pass over each pair."""
        results: dict[int, Attention] = {}
        for rows, source_ids, target_ids, weights in self._forced_batches(
            self._weights_of, sources, targets
        ):
            arrays = {name: tensor.numpy() for name, tensor in weights.items()}
            columns = zip(rows, source_ids, target_ids, strict=True)
            for i, (row, source, target) in enumerate(columns):
                s, t = len(source), len(target)
                results[row] = Attention(
                    source=self._codec.pieces(source, "source"),
                    target=self._codec.pieces(target, "target"),
                    encoder=arrays["encoder"][:, i, :, :s, :s],
                    decoder=arrays["decoder"][:, i, :, :t, :t],
                    cross=arrays["cross"][:, i, :, :t, :s],
                )
        return [results[row] for row in range(len(sources))]

    def _forced_batches(
        self,
        function: Callable,
        sources: Sequence[str],
        targets: Sequence[str],
        progress: Progress | None = None,
    ) -> Iterator[tuple[list[int], Ids, Ids, tf.Tensor]]:
        """Yields, for each batch, its rows, their source and target ids, and the result."""
        source_ids = self._codec.source_ids(sources)
        target_ids = self._codec.target_ids(targets)
        lengths = [max(map(len, pair)) for pair in zip(source_ids, target_ids, strict=True)]
        positions = self._decoding.batch_tokens // self._decoding.beam_size

        def batch(rows: list[int]) -> tuple[Ids, Ids]:
            return [source_ids[row] for row in rows], [target_ids[row] for row in rows]

        def compute(rows: list[int]) -> tf.Tensor:
            return function(*map(padded, batch(rows)))

        for rows, result in in_batches(lengths, positions, compute, progress):
            yield rows, *batch(rows), result

    # --- In the graph: source and labels, int32 [B, S] and [B, T] ------------------------

    def log_probs(self, source: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """Returns the summed log-probability of the labels, [B]."""
        logits = self._model({"source": source, "target": _inputs(labels)}, training=False)
        losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
        return -tf.reduce_sum(tf.where(labels == PAD_ID, 0.0, losses), axis=1)

    def _weights(self, source: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        return only_model(self._model).attention_weights(source, _inputs(labels))

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
