"""Pictures of results: bars with their spread, and lines on logarithmic axes.

Shades, hatches and markers tell the series apart without colour.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.rounds import Spread
from tf_transformer.plots import STYLES, new_figure, save

OURS, FLOOR = "tf_transformer", "matrix products alone"  # names of contenders
_SHADES = {"ours": "0.4", "peer": "0.8", "floor": "white"}


@dataclass(frozen=True)
class Bar:
    """A bar from 0 to the median, with an error bar from the lowest value to the highest.

    `kind`, a key of `_SHADES`, selects its shade.
    """

    label: str
    spread: Spread
    kind: str


def kind_of(name: str) -> str:
    """Returns the kind of bar for a contender."""
    if name == FLOOR:
        return "floor"
    return "ours" if name.startswith(OURS) else "peer"


@dataclass(frozen=True)
class Series:
    """A line through points (x, y); thin and without markers if `theory` is set."""

    label: str
    points: Sequence[tuple[float, float]]
    theory: bool = False


def draw_bars(panels: Mapping[str, Sequence[Bar]], unit: str, stem: Path) -> list[Path]:
    """Draws a panel of horizontal bars for each title.

    Args:
        panels: bars by title.
        unit: unit of all panels.
        stem: path without suffix.

    Returns:
        The paths of the written files.

    Raises:
        UserError: if matplotlib is missing or a file cannot be written.
    """
    heights = [len(bars) + 1.2 for bars in panels.values()]
    figure = new_figure(7.5, 0.34 * sum(heights) + 0.4)
    axes = figure.subplots(len(panels), 1, squeeze=False, height_ratios=heights)[:, 0]
    for (title, bars), one in zip(panels.items(), axes, strict=True):
        medians = [bar.spread.median for bar in bars]
        below = [bar.spread.median - bar.spread.low for bar in bars]
        above = [bar.spread.high - bar.spread.median for bar in bars]
        one.barh(
            range(len(bars)),
            medians,
            xerr=[below, above],
            color=[_SHADES[bar.kind] for bar in bars],
            edgecolor="black",
            capsize=3,
            error_kw={"ecolor": "black"},
        )
        one.set_yticks(range(len(bars)), [bar.label for bar in bars])
        one.set_title(title, fontsize="medium")
        one.invert_yaxis()
        one.set_xlim(0, None)
        one.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
        one.grid(axis="x", alpha=0.3)
        one.set_axisbelow(True)
    axes[-1].set_xlabel(unit)
    return _save(figure, stem)


def draw_lines(
    panels: Mapping[str, Sequence[Series]], x_label: str, y_labels: Sequence[str], stem: Path
) -> list[Path]:
    """Draws panels side by side, on logarithmic axes; otherwise like `draw_bars`."""
    columns = min(len(panels), 3)
    rows = -(-len(panels) // columns)
    figure = new_figure(4.4 * columns, 3.8 * rows)
    from matplotlib.ticker import LogLocator  # installed: `new_figure` has checked

    axes = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for one in axes[len(panels) :]:
        one.axis("off")
    for (title, series), one, label in zip(panels.items(), axes, y_labels, strict=False):
        for number, line in enumerate(series):
            _draw_line(one, line, number)
        one.set(xscale="log", yscale="log", ylabel=label, xlabel=x_label)
        ticks = sorted({x for line in series for x, _ in line.points})
        one.set_xticks(ticks, [f"{x:g}" for x in ticks], fontsize="small")
        one.minorticks_off()
        one.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
        one.yaxis.set_major_formatter(lambda y, _: f"{y:,.10g}")
        one.set_title(title, fontsize="medium")
        one.grid(alpha=0.3)
        if any(line.label for line in series):
            one.legend(fontsize="small")
    return _save(figure, stem)


def _draw_line(axes, line: Series, number: int) -> None:
    style = STYLES[number % len(STYLES)] | {"markersize": 4, "linewidth": 1.4}
    if line.theory:
        style |= {"color": "0.6", "linewidth": 1, "marker": "None"}
    axes.plot(*zip(*line.points, strict=True), label=line.label, **style)


def _save(figure, stem: Path) -> list[Path]:
    paths = [stem.with_name(f"{stem.name}.{kind}") for kind in ("png", "svg")]
    for path in paths:
        save(figure, path)
    return paths
