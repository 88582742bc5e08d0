"""Pictures of a study: importance of heads, of sublayers, and the curve of pruning."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from experiments.common import new_figure, save
from experiments.heads.masks import KINDS, NETWORKS, Head
from experiments.heads.study import Importance, Study

_CELL = (0.62, 0.42)  # width and height of a cell in a picture, in inches
_WHITE_ON = 0.36  # share of the largest value above which numbers are white


def draw(study: Study, output: Path) -> None:
    """Writes the pictures of a study into a folder, each as .png and .svg."""
    points = study.curve
    rises = _by_kind(study.importances, "loss_change")
    rows = [("rise in loss\n(nats per piece)", "+z.3f", rises)]
    bars = {"rise in loss (nats per piece)": [each.loss_change for each in study.sublayers]}
    curves: dict[str, Sequence[float | None]]
    curves = {"loss (nats per piece)": [point.loss for point in points]}
    if points[0].bleu is not None:
        falls = _by_kind(study.importances, "bleu_change").items()
        rows.append(("fall in BLEU", "+z.1f", {kind: -grid for kind, grid in falls}))
        bars["fall in BLEU"] = [-(each.bleu_change or 0) for each in study.sublayers]
        curves = {"BLEU": [point.bleu for point in points], **curves}
    kept = [point.kept for point in points]
    figures = {
        "importance": importance_figure(rows, "One head masked"),
        "sublayers": sublayer_figure([each.head for each in study.sublayers], bars),
        "pruning": pruning_figure(kept, curves, "Least important heads pruned"),
    }
    for name, figure in figures.items():
        save(figure, output / f"{name}.png", output / f"{name}.svg")


def _by_kind(importances: Sequence[Importance], field: str) -> dict[str, np.ndarray]:
    """Returns one measure of all heads, [layers, heads] for each kind of attention."""
    grids = {}
    for kind, name in KINDS.items():
        row = [result for result in importances if result.head.kind == kind]
        layers = max(result.head.layer for result in row)
        grids[name] = np.array([getattr(result, field) for result in row]).reshape(layers, -1)
    return grids


def importance_figure(
    rows: Sequence[tuple[str, str, Mapping[str, np.ndarray]]], title: str
) -> Any:
    """Draws a row of grids for each measure: white is 0 and below, black the largest value.

    Shades follow the square root, because a single head often matters as much as all others
    together.

    A row is the label of its colour bar, the format of a number, and the numbers
    [layers, heads] by kind of attention; large ones mean important heads. All rows have the
    same kinds and shapes; encoder and decoder may differ in depth. Returns a matplotlib figure.
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


def sublayer_figure(sublayers: Sequence[Head], bars: Mapping[str, Sequence[float]]):
    """Draws a bar for each masked sublayer, feed-forward networks darker than attention.

    `bars` are keyed by the name of the horizontal axis. Returns a matplotlib figure.
    """
    figure = new_figure(3.4 * len(bars) + 1.4, 1.0 + 0.24 * len(sublayers))
    panels = figure.subplots(1, len(bars), squeeze=False, sharey=True)[0]
    names = [f"{(KINDS | NETWORKS)[each.kind]} {each.layer}" for each in sublayers]
    colors = ["0.3" if each.kind in NETWORKS else "0.75" for each in sublayers]
    for axes, (label, values) in zip(panels, bars.items(), strict=True):
        axes.barh(names, values, color=colors, edgecolor="black", linewidth=0.5)
        axes.set_xlabel(label)
        axes.grid(axis="x", alpha=0.3)
        axes.set_axisbelow(True)
    panels[0].invert_yaxis()
    figure.suptitle("One sublayer masked")
    return figure


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
