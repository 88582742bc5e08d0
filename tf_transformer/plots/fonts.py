"""Installed fonts for text in any script."""

import logging
from collections.abc import Sequence

logger = logging.getLogger(__name__)

DEFAULT = "DejaVu Sans"  # comes with matplotlib; has Latin, Greek, Cyrillic, Arabic and more
# Has a box for every character, so that its cover says nothing.
_LAST_RESORT = "Last Resort"


def families_for(texts: Sequence[str]) -> list[str]:
    """The font families that together show the texts, the default first.

    Says so in one line if no installed font has some of the characters.
    """
    from matplotlib.font_manager import findfont, fontManager

    families = [DEFAULT]
    missing = {ord(one) for text in texts for one in text if one.isprintable()}
    missing -= _characters(findfont(DEFAULT))
    if not missing:
        return families
    # Of the files of a family, the one that upright text of normal weight is drawn with.
    paths = {font.name: font.fname for font in sorted(fontManager.ttflist, key=_is_regular)}
    fonts = {
        name: _characters(path) & missing
        for name, path in sorted(paths.items())
        if not name.startswith(_LAST_RESORT)
    }
    while missing & set().union(*fonts.values()):
        best = max(fonts, key=lambda name: len(fonts[name] & missing))
        families.append(best)
        missing -= fonts[best]
    if missing:
        logger.warning(
            "characters that no installed font has, drawn as boxes: %d, such as %s",
            len(missing),
            "".join(map(chr, sorted(missing)[:10])),
        )
    return families


def _is_regular(font) -> bool:
    return font.style == "normal" and font.weight in (400, "normal", "regular")


def _characters(path: str) -> set[int]:
    """The code points that a font file has."""
    from matplotlib.ft2font import FT2Font

    try:
        return set(FT2Font(path).get_charmap())
    except (OSError, RuntimeError):  # such as a font of a newer format
        return set()
