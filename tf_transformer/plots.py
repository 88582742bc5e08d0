"""Pictures by matplotlib, without global state: figures, learning curves, attention."""

import io
import logging
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tf_transformer.base.errors import UserError, missing_extra
from tf_transformer.base.files import replacing
from tf_transformer.base.output import Table

if TYPE_CHECKING:  # `--help` waits for no NumPy
    import numpy as np

logger = logging.getLogger(__name__)

SUFFIXES = (".png", ".svg", ".pdf")

# Included in matplotlib; covers Latin, Greek, Cyrillic, Arabic and more.
DEFAULT_FONT = "DejaVu Sans"
_LAST_RESORT = "Last Resort"  # draws a box for every character

# One per run, distinct in marker, line and grey; the colours are Okabe and Ito's.
STYLES: list[dict[str, Any]] = [
    {"color": "black", "marker": "o", "linestyle": "-"},
    {"color": "#d55e00", "marker": "s", "linestyle": "--"},
    {"color": "#0072b2", "marker": "^", "linestyle": "-."},
    {"color": "#009e73", "marker": "D", "linestyle": ":"},
    {"color": "#cc79a7", "marker": "v", "linestyle": "-"},
    {"color": "#e69f00", "marker": "P", "linestyle": "--"},
    {"color": "#56b4e9", "marker": "X", "linestyle": "-."},
    {"color": "#7f7f7f", "marker": "*", "linestyle": ":"},
]


def new_figure(
    width: float,
    height: float,
    layout: Literal["compressed", "constrained"] | None = "constrained",
):
    """Returns an empty figure, sized in inches; raises UserError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise missing_extra("A picture", "matplotlib", "plot") from None
    return Figure(figsize=(width, height), layout=layout)


def number_plainly(axis) -> None:
    """Labels a logarithmic axis with 60 rather than 6 x 10^1."""
    from matplotlib.ticker import LogFormatter

    axis.set_major_formatter(LogFormatter())
    axis.set_minor_formatter(LogFormatter(minor_thresholds=(2, 0.5)))


def save(figure, path: Path, dpi: int = 200, **options) -> None:
    """Writes a figure in the format of the suffix of `path`, one of `SUFFIXES`."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format=path.suffix[1:], **options)


@contextmanager
def missing_glyphs_logged() -> Iterator[None]:
    """Silences matplotlib about characters without a font: `families_for` has logged them."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Glyph")
        yield


def short_names(paths: Sequence[Path]) -> list[str]:
    """Shortens each path to its last parts, as few as tell the paths apart."""
    parts = [path.resolve().parts for path in paths]
    count = 1
    while len({each[-count:] for each in parts}) < len({*parts}):
        count += 1
    return ["/".join(each[-count:]) for each in parts]


def families_for(texts: Sequence[str]) -> list[str]:
    """Returns font families that together cover the texts, in matplotlib's order of fallback.

    Logs a warning about characters that no installed font has.
    """
    from matplotlib.font_manager import findfont, fontManager

    missing = {ord(char) for text in texts for char in text if char.isprintable()}
    missing -= _characters(findfont(DEFAULT_FONT))
    families = [DEFAULT_FONT]
    regular = {
        font.name: font.fname
        for font in fontManager.ttflist
        if font.style == "normal" and font.weight in (400, "normal", "regular")
        if not font.name.startswith(_LAST_RESORT)
    }
    for name in sorted(regular) if missing else ():
        if shown := missing & _characters(regular[name]):
            families.append(name)
            missing -= shown
    if missing:
        logger.warning(
            "characters in no installed font, drawn as boxes: %d, such as %s",
            len(missing),
            "".join(map(chr, sorted(missing)[:10])),
        )
    return families


def _characters(path: str) -> set[int]:
    from matplotlib.ft2font import FT2Font

    try:
        return set(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # such as a font of a newer format
        return set()


# --- Learning curves --------------------------------------------------------------------

_MARKERS = 12  # approximate number per line


@dataclass(frozen=True)
class LearningCurve:
    """The learning curve of a run.

    The records, as in metrics.jsonl, have the perplexity of batches since the last evaluation,
    with dropout, and on the dev set; BLEU there and perhaps on that of the --init-from run.
    """

    label: str  # name of the run
    records: Sequence[Mapping[str, Any]]
    best: Mapping[str, Any]  # of these, the one with the highest BLEU on the latest dev set

    def column(self, name: str) -> list[float]:
        """Returns a number of each evaluation; [] if some lack it."""
        has_all = all(name in record for record in self.records)
        return [record[name] for record in self.records] if has_all else []


def draw_curves(curves: Sequence[LearningCurve], path: Path) -> None:
    """Draws perplexity, on a logarithmic axis, beside BLEU on the dev set.

    Raises UserError if matplotlib is missing or the file, a .png, .svg or .pdf, cannot be
    written.
    """
    figure = new_figure(10, 4 + 0.4 * len(curves))
    perplexity, bleu = figure.subplots(1, 2)
    for index, curve in enumerate(curves):
        steps = curve.column("step")
        every = max(1, len(steps) // _MARKERS)
        marks = {"markevery": every, "markersize": 4, "clip_on": False}
        style = STYLES[index % len(STYLES)] | marks
        faint = {"color": style["color"], "linestyle": ":", "linewidth": 1}
        label = f"{curve.label}, train, with dropout"
        perplexity.plot(steps, curve.column("perplexity"), label=label, **faint)
        label = f"{curve.label}, dev"
        perplexity.plot(steps, curve.column("valid_perplexity"), label=label, **style)
        label = f"{curve.label}, highest {curve.best['valid_bleu']:.4g}"
        bleu.plot(steps, curve.column("valid_bleu"), label=label, **style)
        if old := curve.column("valid_old_bleu"):
            bleu.plot(steps, old, label=f"{curve.label}, old dev set", **faint)
    perplexity.set(xlabel="step", title="perplexity", yscale="log")
    bleu.set(xlabel="step", title="dev BLEU")
    number_plainly(perplexity.yaxis)
    for axes in (perplexity, bleu):
        axes.grid(alpha=0.3)
        # Below, where it covers no line.
        axes.legend(fontsize="small", loc="upper center", bbox_to_anchor=(0.5, -0.15))
    save(figure, path, bbox_inches="tight")


# --- Attention --------------------------------------------------------------------------

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
    """The content of a picture of attention."""

    title: str
    panels: dict[str, "np.ndarray"]  # weights [rows, columns] of at least one, by title
    rows: Sequence[str]  # query pieces
    columns: Sequence[str]  # key pieces
    row_name: str
    column_name: str
    links: Sequence[tuple[range, range]] = ()  # aligned words, drawn as boxes


def draw_attention(maps: Heatmaps, path: Path) -> None:
    """Draws the panels side by side: white is 0, black the largest weight of all panels.

    Raises UserError if matplotlib is missing, the picture would be too large, or the file, a
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
    axes = list(figure.subplots(*grid, squeeze=False).flat)
    while len(axes) > count:
        axes.pop().remove()
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
        # Thin lines between cells, to guide the eye to the labels.
        panel.set_yticks([row + 0.5 for row in range(len(weights) - 1)], minor=True)
        panel.set_xticks([column + 0.5 for column in range(weights.shape[1] - 1)], minor=True)
        panel.grid(which="minor", color="0.85", linewidth=0.4)
        panel.tick_params(which="minor", length=0)
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
