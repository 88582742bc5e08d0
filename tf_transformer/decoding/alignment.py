"""Word alignments of translations, read from the attention of a forced pass."""

from collections.abc import Sequence
from dataclasses import dataclass

import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.vocabulary import SPACE_PIECE


def default_layer(num_layers: int) -> int:
    """Returns the decoder layer that alignments are read from, counted from 0.

    In Garg et al. (2019, "Jointly Learning to Align and Translate with Transformer Models"),
    layer 5 of the base model's 6 is best; other models use the same relative depth.
    """
    return -(-5 * num_layers // 6) - 1


def nearest_pieces(weights: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
    """Returns the index of the source piece that each target piece is aligned to.

    It is the piece with the largest attention weight, averaged over the heads, at the step that
    predicts the target piece. The EOS of the source is excluded. Takes the cross-attention of
    one layer in a forced pass, [B, H, T, S], and the source, int32 [B, S], with EOS and
    padding; returns int32 [B, T], 0 where the source is blank.
    """
    is_piece = (source != EOS_ID) & (source != PAD_ID)
    mean = tf.where(is_piece[:, tf.newaxis], tf.reduce_mean(weights, axis=1), -1.0)
    return tf.argmax(mean, axis=-1, output_type=tf.int32)


def word_pairs(
    source_pieces: Sequence[str], target_pieces: Sequence[str], nearest: Sequence[int]
) -> list[tuple[int, int]]:
    """Returns the (source, target) indices, from 0, of words with at least one aligned piece.

    Pieces are without EOS; `nearest` has the index of each target piece's source piece.
    """
    source_words, target_words = word_numbers(source_pieces), word_numbers(target_pieces)
    if not source_words:
        return []
    pairs = zip(nearest, target_words, strict=True)
    return sorted({(source_words[index], word) for index, word in pairs})


def word_numbers(pieces: Sequence[str]) -> list[int]:
    """Returns the index of the word each piece belongs to; a lone space joins the next word."""
    numbers, current, begun = [], 0, False
    for piece in pieces:
        if begun and piece.startswith(SPACE_PIECE):
            current, begun = current + 1, False
        begun = begun or piece != SPACE_PIECE
        numbers.append(current)
    return numbers


@dataclass(frozen=True)
class Alignment:
    """Aligned words of a sentence and its translation, as (source, target) indices from 0.

    `str(alignment)` is in the Pharaoh format.

    Attributes:
        source: the sentence.
        target: its translation.
        pairs: indices of aligned words.

    Example:
        >>> print(Alignment("we saw it", "wir haben es gesehen", [(0, 0), (1, 3), (2, 2)]))
        0-0 1-3 2-2
    """

    source: str
    target: str
    pairs: list[tuple[int, int]]

    def __str__(self) -> str:
        return " ".join(f"{source}-{target}" for source, target in self.pairs)
