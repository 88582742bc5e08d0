"""Attention weights as grey cells, one row per query piece."""

import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tf_transformer.errors import UserError
from tf_transformer.output import Table
from tf_transformer.plots.figure import families_for, missing_glyphs_logged, new_figure, save

# Side of a cell in inches and font size of labels, for one panel and for several.
_ONE = (0.25, 10.0)
_SEVERAL = (0.16, 7.0)
_CHARACTER = 0.009  # inches per point of font size and character of a label
_BAR = 0.16  # inches across the colour bar
_GAP = 0.35  # inches between panels, including the title
_LONGEST_SIDE = 100.0  # inches
# Vermilion of Okabe and Ito's palette, which stands out on any grey with a white edge.
_LINK = "#d55e00"


@dataclass(frozen=True)
class Heatmaps:
    """The content of a picture of attention.

    Attributes:
        title: title of the whole picture.
        panels: weights [rows, columns] of at least one panel, by title.
        rows, columns: query pieces, and key pieces.
        row_name, column_name: labels of the axes.
        links: rows and columns of aligned words, drawn as boxes.
    """

    title: str
    panels: dict[str, np.ndarray]
    rows: Sequence[str]
    columns: Sequence[str]
    row_name: str
    column_name: str
    links: Sequence[tuple[range, range]] = ()


def draw_attention(maps: Heatmaps, path: Path) -> None:
    """Draws the panels side by side: white is 0, black the largest weight of all panels.

    Raises:
        UserError: if matplotlib is missing, the picture would be too large, or the file, a
            .png, .svg or .pdf, cannot be written.
    """
    figure = attention_figure(maps)
    with missing_glyphs_logged():
        save(figure, path, bbox_inches="tight")


def as_png(maps: Heatmaps) -> bytes | None:
    """Returns the picture for a notebook; None without matplotlib, or if it is too large."""
    try:
        figure = attention_figure(maps)
    except UserError:
        return None
    picture = io.BytesIO()
    with missing_glyphs_logged():
        figure.savefig(picture, dpi=100, format="png", bbox_inches="tight")
    return picture.getvalue()


def as_table(maps: Heatmaps) -> str:
    """Formats the first panel as text, in percent."""
    weights = next(iter(maps.panels.values()))
    rows = [
        [row, *(f"{100 * w:.0f}" for w in line)]
        for row, line in zip(maps.rows, weights, strict=True)
    ]
    return Table(["%", *maps.columns], rows).text("plain")


def attention_figure(maps: Heatmaps):
    """Returns the matplotlib figure that `draw_attention` writes."""
    count = len(maps.panels)
    grid = _grid(count)
    cell, points = _ONE if count == 1 else _SEVERAL
    size = _size(maps, grid, cell, points)
    figure = new_figure(*size, layout="compressed")
    axes = figure.subplots(*grid, squeeze=False).ravel()
    for unused in axes[count:]:
        unused.remove()
    axes = list(axes[:count])
    image = _draw_panels(axes, maps, grid[1], points)
    bar = figure.colorbar(image, ax=axes, fraction=_BAR / size[0])
    bar.set_label("attention weight", fontsize=points + 1)
    bar.ax.tick_params(labelsize=points)
    figure.suptitle(maps.title, fontsize=points + 3)
    figure.supxlabel(maps.column_name, fontsize=points + 1)
    figure.supylabel(maps.row_name, fontsize=points + 1)
    return figure


def _draw_panels(axes: list, maps: Heatmaps, columns: int, points: float):
    """Draws a panel on each axes object; returns the last image, whose scale all share."""
    families = families_for([*maps.rows, *maps.columns])
    font = {"fontsize": points, "fontfamily": families, "parse_math": False}
    largest = max(float(weights.max()) for weights in maps.panels.values())
    for index, (panel, title) in enumerate(zip(axes, maps.panels, strict=True)):
        weights = maps.panels[title]
        image = panel.imshow(weights, "Greys", vmin=0, vmax=largest, interpolation="nearest")
        panel.set_title(title, fontsize=points + 1)
        _draw_lines(panel, weights.shape)
        _draw_boxes(panel, maps.links)
        rows = maps.rows if index % columns == 0 else ()
        below = maps.columns if index + columns >= len(axes) else ()
        panel.set_yticks(range(len(rows)), rows, **font)
        panel.set_xticks(range(len(below)), below, rotation=90, **font)
    return image


def _grid(count: int) -> tuple[int, int]:
    """Returns rows and columns of a nearly square grid, without gaps if possible."""
    root = math.ceil(math.sqrt(count))
    columns = next((each for each in range(root, 2 * root + 1) if count % each == 0), root)
    return math.ceil(count / columns), columns


def _size(
    maps: Heatmaps, grid: tuple[int, int], cell: float, points: float
) -> tuple[float, float]:
    """Returns width and height in inches that fit all cells; saving crops the excess."""
    longest = [max(map(len, labels)) for labels in (maps.columns, maps.rows)]
    below, left = (_CHARACTER * points * length for length in longest)
    width = grid[1] * (len(maps.columns) * cell + _GAP) + left + 1.2
    height = grid[0] * (len(maps.rows) * cell + _GAP) + below + 0.8
    if max(width, height) > _LONGEST_SIDE:
        raise UserError(
            f"The picture would be {width:.0f} by {height:.0f} inches; the limit is "
            f"{_LONGEST_SIDE:.0f}. Draw a single head, or a shorter sentence."
        )
    return width, height


def _draw_lines(axes, shape: tuple[int, ...]) -> None:
    """Draws thin lines between cells, to guide the eye to the labels."""
    axes.set_yticks(np.arange(0.5, shape[0] - 1), minor=True)
    axes.set_xticks(np.arange(0.5, shape[1] - 1), minor=True)
    axes.grid(which="minor", color="0.85", linewidth=0.4)
    axes.tick_params(which="minor", length=0)


def _draw_boxes(axes, links: Sequence[tuple[range, range]]) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import withStroke

    for rows, columns in links:
        box = Rectangle(
            (columns.start - 0.5, rows.start - 0.5),
            len(columns),
            len(rows),
            fill=False,
            edgecolor=_LINK,
            linewidth=1.6,
            path_effects=[withStroke(linewidth=3.2, foreground="white")],
        )
        axes.add_patch(box)
