"""Attention weights of a forced pass: a record for notebooks, and the words they align."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.vocabulary import SPACE_PIECE
from tf_transformer.plots import Heatmaps, as_png, as_table
from tf_transformer.terms.placing import Nearest

BEGINNING = "<s>"  # the first input of the decoder
# Axis labels of rows and columns, by kind of attention.
_AXES = {
    "encoder": ("source pieces", "source pieces attended to"),
    "decoder": ("target pieces, as predicted", "target pieces attended to, as read"),
    "cross": ("target pieces, as predicted", "source pieces attended to"),
}
_ALIGNMENT = "alignment"


# --- Word alignments -------------------------------------------------------------------------


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

    Pieces are without EOS; `nearest` has the index of each target piece's source piece,
    negative for none.
    """
    source_words, target_words = word_numbers(source_pieces), word_numbers(target_pieces)
    if not source_words:
        return []
    pairs = zip(nearest, target_words, strict=True)
    return sorted({(source_words[index], word) for index, word in pairs if index >= 0})


def without_tag(
    source: Sequence[str], target: Sequence[str], nearest: Sequence[int], tag_words: int
) -> Nearest:
    """Returns the alignment of pieces without those of a tag, whose numbers are negative."""
    size = sum(word < tag_words for word in word_numbers(source))
    return Nearest(source[size:], target, [near - size for near in nearest[: len(target)]])


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


# --- Weights ---------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Attention:
    """Attention weights of a model during forced decoding of a translation.

    Row t of `decoder` and `cross` is the step that predicts target piece t: its input is the
    previous piece, or BOS. A notebook displays `heatmaps()` as a picture, or as a table if
    matplotlib is missing.

    Example:
        >>> import tf_transformer
        >>> translator = tf_transformer.load("runs/mine")
        >>> attention = translator.attention("Good morning.", "Guten Morgen.")
        >>> list(attention.heatmaps("cross", layer=0, head=2).panels)
        ['head 3']
    """

    source: list[str]  # S pieces, the last is "</s>"
    target: list[str]  # T pieces, the last is "</s>"
    encoder: np.ndarray  # float32 [N, H, S, S]
    decoder: np.ndarray  # float32 [N, H, T, T]
    cross: np.ndarray  # float32 [N, H, T, S]

    def __repr__(self) -> str:
        layers, heads = self.cross.shape[:2]
        return f"Attention of {layers} layers, {heads} heads:\n{as_table(self.heatmaps())}"

    def _repr_png_(self) -> bytes | None:
        return as_png(self.heatmaps())

    def heatmaps(
        self, kind: str = _ALIGNMENT, layer: int | None = None, head: int | None = None
    ) -> Heatmaps:
        """Returns the weights of the chosen heads as heatmaps.

        Args:
            kind: "encoder", "decoder" or "cross"; "alignment" is the mean over the heads of
                cross-attention, with aligned words in boxes.
            layer: counted from 0, while the titles and the command line count from 1;
                `default_layer` if None.
            head: counted from 0; all if None.
        """
        aligned = kind == _ALIGNMENT
        heads = getattr(self, "cross" if aligned else kind)
        layer = default_layer(len(heads)) if layer is None else layer
        name = "cross-attention" if kind == "cross" else f"{kind} self-attention"
        title = f"{_ALIGNMENT if aligned else name}, layer {layer + 1} of {len(heads)}"
        chosen = range(heads.shape[1]) if head is None else [head]
        panels = {f"head {number + 1}": heads[layer, number] for number in chosen}
        if aligned:
            panels = {"mean of heads": heads[layer].mean(axis=0)}
        columns = [BEGINNING, *self.target[:-1]] if kind == "decoder" else self.source
        rows = self.source if kind == "encoder" else self.target
        axes, links = _AXES["cross" if aligned else kind], self._links(layer) if aligned else ()
        return Heatmaps(title, panels, rows, columns, *axes, links)

    def _links(self, layer: int) -> list[tuple[range, range]]:
        """Returns the pieces of aligned words, (target, source); see `nearest_pieces`."""
        if len(self.source) == 1:
            return []
        pieces = self.source[:-1], self.target[:-1]
        nearest = self.cross[layer].mean(axis=0)[:-1, :-1].argmax(axis=1)
        sources, targets = map(_word_ranges, pieces)
        pairs = word_pairs(*pieces, nearest.tolist())
        return [(targets[target], sources[source]) for source, target in pairs]


def _word_ranges(pieces: list[str]) -> list[range]:
    """Returns the range of pieces that make up each word."""
    numbers = word_numbers(pieces)
    firsts = [numbers.index(word) for word in range(numbers[-1] + 1)] if numbers else []
    return list(map(range, firsts, [*firsts[1:], len(numbers)]))
