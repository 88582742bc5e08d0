"""Matplotlib figures without global state, as PNG, SVG or PDF; fonts for any script."""

import logging
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tf_transformer.errors import missing_extra
from tf_transformer.files import replacing

logger = logging.getLogger(__name__)

SUFFIXES = (".png", ".svg", ".pdf")

# Included in matplotlib; covers Latin, Greek, Cyrillic, Arabic and more.
DEFAULT_FONT = "DejaVu Sans"
_LAST_RESORT = "Last Resort"  # draws a box for every character

# One per run, distinct in marker, line and grey; the colours are Okabe and Ito's.
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
    }
    for name in sorted(regular) if missing else ():
        if name.startswith(_LAST_RESORT):
            continue
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
    """Returns the code points in a font file."""
    from matplotlib.ft2font import FT2Font

    try:
        return set(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # such as a font of a newer format
        return set()
