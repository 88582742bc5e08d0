"""The importance of heads as grids of layers x heads, and the curve of pruning."""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np

from tf_transformer.plots.figure import new_figure

_CELL = (0.62, 0.42)  # width and height of a cell, in inches
_WHITE_ON = 0.36  # share of the largest value above which numbers are white

Row: TypeAlias = tuple[str, str, Mapping[str, np.ndarray]]


def importance_figure(rows: Sequence[Row], title: str):
    """Draws a row of grids for each measure: white is 0 and below, black the largest value.

    Shades follow the square root, because a single head often matters as much as all others
    together.

    Args:
        rows: for each measure the label of its colour bar, the format of a number, and the
            numbers [layers, heads] by kind of attention; large ones mean important heads. All
            have the same kinds and shapes; encoder and decoder may differ in depth.
        title: title of the figure.

    Returns:
        A matplotlib figure.
    """
    shapes = [values.shape for values in rows[0][2].values()]
    depths, heads = {layers for layers, _ in shapes}, shapes[0][1]
    kinds, layers = len(shapes), max(depths)
    width = kinds * (heads * _CELL[0] + 0.4) + 2.2
    figure = new_figure(width, 1.0 + len(rows) * (layers * _CELL[1] + 1.0))
    axes = figure.subplots(
        len(rows), kinds, squeeze=False, sharex=True, sharey=len(depths) == 1
    )
    for panels, (label, form, grids) in zip(axes, rows, strict=True):
        largest = max(1e-9, *(float(grid.max()) for grid in grids.values()))  # or 0 and less
        images = [
            _draw_grid(panel, kind, values, form, largest)
            for panel, (kind, values) in zip(panels, grids.items(), strict=True)
        ]
        figure.colorbar(images[0], ax=list(panels)).set_label(label)
    figure.suptitle(title)
    figure.supxlabel("head")
    figure.supylabel("layer")
    return figure


def _draw_grid(axes, kind: str, values: np.ndarray, form: str, largest: float):
    from matplotlib.colors import PowerNorm

    norm = PowerNorm(0.5, vmin=0, vmax=largest)
    image = axes.imshow(values, "Greys", norm=norm, aspect="auto")
    axes.set_title(kind, fontsize="medium")
    layers, heads = values.shape
    axes.set_xticks(range(heads), range(1, heads + 1))
    axes.set_yticks(range(layers), range(1, layers + 1))
    for (layer, head), value in np.ndenumerate(values):
        color = "white" if value > _WHITE_ON * largest else "black"
        text = format(value, form)
        axes.text(head, layer, text, color=color, ha="center", va="center", fontsize="small")
    return image


def pruning_figure(
    kept: Sequence[int], curves: Mapping[str, Sequence[float | None]], title: str
):
    """Draws a panel for each curve against the number of heads kept.

    A dotted line marks the value with all heads. `curves` are keyed by the name of the vertical
    axis. Returns a matplotlib figure.
    """
    figure = new_figure(4.6 * len(curves), 3.6)
    panels = figure.subplots(1, len(curves), squeeze=False)[0]
    for axes, (name, values) in zip(panels, curves.items(), strict=True):
        whole = values[kept.index(max(kept))]
        axes.axhline(whole, color="0.5", linestyle=":", label="all heads")
        axes.plot(kept, values, color="black", marker="o", markersize=4, label="pruned")
        axes.set(xlabel=f"heads kept, of {max(kept)}", ylabel=name)
        axes.grid(alpha=0.3)
        axes.legend(fontsize="small")
    figure.suptitle(title)
    return figure
