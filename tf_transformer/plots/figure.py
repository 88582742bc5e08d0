"""Matplotlib figures, without its global state, as PNG, SVG or PDF."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tf_transformer.errors import missing_extra
from tf_transformer.files import replacing

SUFFIXES = (".png", ".svg", ".pdf")

# One per run, distinct in marker, line and grey; the colours are those of Okabe and Ito.
STYLES = [
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
    """Returns an empty matplotlib figure, sized in inches; UserError without matplotlib."""
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


def short_names(paths: Sequence[Path]) -> list[str]:
    """Returns the last parts of each path, only as many as tell the paths apart."""
    parts = [path.resolve().parts for path in paths]
    count = 1
    while len({each[-count:] for each in parts}) < len({*parts}):
        count += 1
    return ["/".join(each[-count:]) for each in parts]
