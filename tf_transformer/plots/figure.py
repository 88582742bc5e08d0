"""Figures of matplotlib, without its global state, as PNG and SVG."""

from pathlib import Path
from typing import Literal

from tf_transformer.errors import missing_extra
from tf_transformer.files import replacing

# Of several runs in turn, distinct by marker, line and grey, and by Okabe and Ito's colours.
STYLES = [
    {"color": "black", "marker": "o", "linestyle": "-"},
    {"color": "#d55e00", "marker": "s", "linestyle": "--"},
    {"color": "#0072b2", "marker": "^", "linestyle": "-."},
    {"color": "#009e73", "marker": "D", "linestyle": ":"},
    {"color": "#cc79a7", "marker": "v", "linestyle": "-"},
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


def save(figure, path: Path, dpi: int = 200, **options) -> None:
    """Writes a figure in the format of the suffix of `path`, .png or .svg."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=dpi, format=path.suffix[1:], **options)
