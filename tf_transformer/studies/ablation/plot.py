"""Table 3 as a picture: the difference of each row from base, ours beside the paper's."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tf_transformer.plots.figure import new_figure, save
from tf_transformer.studies.ablation.table import Difference


def draw_differences(panels: Mapping[str, Sequence[Difference]], path: Path) -> None:
    """Draws two bar charts per title: the paper's differences, white, and ours, grey.

    The two have separate scales, since magnitudes may differ greatly: compare signs and the
    order of the rows. Ours are hatched where the sign is not the paper's.

    Args:
        panels: differences by title, of the same rows in the same order.
        path: the picture's file, a .png, .svg or .pdf.

    Raises:
        UserError: if matplotlib is missing or the file cannot be written.
    """
    height = len(next(iter(panels.values())))
    figure = new_figure(3 * 2 * len(panels), 1.8 + 0.26 * height)
    from matplotlib.patches import Patch  # `new_figure` has checked for matplotlib

    axes = figure.subplots(1, 2 * len(panels), sharey=True)
    for (title, rows), (left, right) in zip(panels.items(), axes.reshape(-1, 2), strict=True):
        _draw_bars(left, right, rows)
        left.set_title(f"{title}, the paper's", fontsize="medium")
        right.set_title(f"{title}, ours", fontsize="medium")
    for each in axes:
        each.axvline(0, color="black", linewidth=0.8)
        each.grid(axis="x", alpha=0.3)
        each.set_axisbelow(True)
    figure.suptitle("Rows of Table 3 minus base")
    if any(_is_opposite(row) for rows in panels.values() for row in rows):
        hatched = Patch(facecolor="white", edgecolor="black", hatch="////")
        figure.legend([hatched], ["not in the paper's direction"], loc="outside lower center")
    axes[0].invert_yaxis()  # rows from top to bottom, as in the table
    save(figure, path)


def _draw_bars(left, right, rows: Sequence[Difference]) -> None:
    labels = [row.label for row in rows]
    left.barh(labels, [row.paper for row in rows], color="white", edgecolor="black")
    several = any(row.deviation is not None for row in rows)
    right.barh(
        labels,
        [row.ours for row in rows],
        xerr=[row.deviation or 0 for row in rows] if several else None,
        color=["white" if _is_opposite(row) else "0.65" for row in rows],
        hatch=["////" if _is_opposite(row) else "" for row in rows],
        edgecolor="black",
        capsize=2,
    )


def _is_opposite(row: Difference) -> bool:
    return row.ours * row.paper < 0
