"""Figures of matplotlib, without its global state, as PNG and SVG."""

from pathlib import Path

from tf_transformer.errors import UserError
from tf_transformer.files import replacing


def new_figure(width: float, height: float):
    """An empty matplotlib figure of so many inches.

    Raises:
        UserError: if matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise UserError(
            'Pictures need matplotlib: pip install "tf-transformer[plot]".'
        ) from None
    return Figure(figsize=(width, height), layout="constrained")


def save(figure, path: Path) -> None:
    """Writes a figure as what the suffix of `path` says, .png or .svg."""
    with replacing(path) as temporary:
        figure.savefig(temporary, dpi=120, format=path.suffix[1:])
