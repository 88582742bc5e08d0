"""Attention weights of a translation, as a record that notebooks display."""

from dataclasses import dataclass

import numpy as np

from tf_transformer.decoding.alignment import default_layer, word_numbers, word_pairs
from tf_transformer.plots import Heatmaps, as_png, as_table

BEGINNING = "<s>"  # the first input of the decoder
# Axis labels of rows and columns, by kind of attention.
_AXES = {
    "encoder": ("source pieces", "source pieces attended to"),
    "decoder": ("target pieces, as predicted", "target pieces attended to, as read"),
    "cross": ("target pieces, as predicted", "source pieces attended to"),
}
_ALIGNMENT = "alignment"


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
                `alignment.default_layer` if None.
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
