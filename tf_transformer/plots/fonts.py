"""Installed fonts for text in any script."""

import logging
from collections.abc import Sequence

logger = logging.getLogger(__name__)

DEFAULT = "DejaVu Sans"  # comes with matplotlib; covers Latin, Greek, Cyrillic, Arabic and more
_LAST_RESORT = "Last Resort"  # draws a box for every character


def families_for(texts: Sequence[str]) -> list[str]:
    """Returns font families that together cover the texts, for matplotlib to fall back on.

    Logs a warning about characters that no installed font has.
    """
    from matplotlib.font_manager import findfont, fontManager

    missing = {ord(char) for text in texts for char in text if char.isprintable()}
    missing -= _characters(findfont(DEFAULT))
    families = [DEFAULT]
    regular = {each.name: each.fname for each in fontManager.ttflist if _is_regular(each)}
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


def _is_regular(font) -> bool:
    return font.style == "normal" and font.weight in (400, "normal", "regular")


def _characters(path: str) -> set[int]:
    """The code points in a font file."""
    from matplotlib.ft2font import FT2Font

    try:
        return set(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # such as a font of a newer format
        return set()
