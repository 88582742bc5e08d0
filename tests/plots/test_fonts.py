"""A font is found for every character that some installed font has."""

import logging
import warnings

import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure  # noqa: E402
from matplotlib.font_manager import FontProperties, findfont  # noqa: E402
from matplotlib.ft2font import FT2Font  # noqa: E402

from tf_transformer.plots.fonts import DEFAULT, families_for  # noqa: E402

# In STIX, which comes with matplotlib, and not in the default.
ELSEWHERE = chr(
    next(
        code
        for code in sorted(FT2Font(findfont("STIXGeneral")).get_charmap())
        if chr(code).isprintable() and code not in FT2Font(findfont(DEFAULT)).get_charmap()
    )
)
NOWHERE = "\U0002ebe0"  # of an extension that hardly a font has


def test_german_and_french_need_the_default_only(caplog):
    assert families_for(["▁Größe", "▁œuvre", "▁déjà", "</s>"]) == [DEFAULT]
    assert not caplog.records


def test_a_character_that_the_default_lacks_brings_a_font_that_has_it(caplog):
    first, *more = families_for(["▁a", ELSEWHERE])
    assert first == DEFAULT
    assert len(more) == 1
    font = findfont(FontProperties(family=more[0]))
    assert ord(ELSEWHERE) in FT2Font(font).get_charmap()
    figure = Figure()
    figure.text(0, 0, ELSEWHERE, fontfamily=[first, *more])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's for a glyph that is missing
        figure.draw_without_rendering()
    assert not caplog.records


def test_a_character_that_no_font_has_is_told_in_one_line(caplog):
    with caplog.at_level(logging.WARNING):
        families = families_for([NOWHERE, f"{NOWHERE}a"])
    if len(families) > 1:
        pytest.skip("a font here has it")
    [record] = caplog.records
    expected = f"characters in no installed font, drawn as boxes: 1, such as {NOWHERE}"
    assert record.getMessage() == expected
