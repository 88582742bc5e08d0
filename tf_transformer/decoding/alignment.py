"""Word alignments, from the pieces of two sentences and the attention between them.

B batch, S source length, T target length, H heads.
"""

from collections.abc import Sequence

import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID

WORD_START = "▁"  # SentencePiece's mark of the space before a word


def default_layer(num_layers: int) -> int:
    """Returns the decoder layer that alignments are read from, counted from 0.

    Garg et al. (2019, "Jointly Learning to Align and Translate with Transformer Models") found
    layer 5 of 6 best in the paper's base model; other models use the same relative depth.
    """
    return -(-5 * num_layers // 6) - 1


def nearest_pieces(weights: tf.Tensor, source: tf.Tensor) -> tf.Tensor:
    """Returns the index of the source piece that each target piece is aligned with.

    It is the piece with the largest attention weight, averaged over the heads, at the step that
    predicts the target piece. The EOS of the source is excluded.

    Args:
        weights: cross-attention of one layer in a forced pass, [B, H, T, S].
        source: int32 [B, S], with EOS and padding.

    Returns:
        int32 [B, T]; 0 where the source is blank.
    """
    is_piece = (source != EOS_ID) & (source != PAD_ID)
    mean = tf.where(is_piece[:, tf.newaxis], tf.reduce_mean(weights, axis=1), -1.0)
    return tf.argmax(mean, axis=-1, output_type=tf.int32)


def word_pairs(
    source_pieces: Sequence[str], target_pieces: Sequence[str], nearest: Sequence[int]
) -> list[tuple[int, int]]:
    """Returns the (source, target) word indices, from 0, joined by at least one aligned piece.

    Args:
        source_pieces: without EOS.
        target_pieces: without EOS.
        nearest: for each target piece, the index of its source piece.
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
        if begun and piece.startswith(WORD_START):
            current, begun = current + 1, False
        begun = begun or piece != WORD_START
        numbers.append(current)
    return numbers
