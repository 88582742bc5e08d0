"""Figures: fonts for every character in some installed font, and short names."""

import logging
import warnings
from pathlib import Path

import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure  # noqa: E402
from matplotlib.font_manager import FontProperties, findfont  # noqa: E402
from matplotlib.ft2font import FT2Font  # noqa: E402

from tf_transformer.plots.figure import DEFAULT_FONT, families_for, short_names  # noqa: E402

# In STIX, which matplotlib includes, and not in the default font.
ELSEWHERE = chr(
    next(
        code
        for code in sorted(FT2Font(findfont("STIXGeneral")).get_charmap())
        if chr(code).isprintable() and code not in FT2Font(findfont(DEFAULT_FONT)).get_charmap()
    )
)
NOWHERE = "\U0002ebe0"  # in an extension that hardly any font covers


def test_german_and_french_need_only_the_default_font(caplog):
    assert families_for(["▁Größe", "▁œuvre", "▁déjà", "</s>"]) == [DEFAULT_FONT]
    assert not caplog.records


def test_a_character_missing_in_the_default_font_adds_a_font_with_it(caplog):
    first, *more = families_for(["▁a", ELSEWHERE])
    assert first == DEFAULT_FONT
    assert len(more) == 1
    font = findfont(FontProperties(family=more[0]))
    assert ord(ELSEWHERE) in FT2Font(font).get_charmap()
    figure = Figure()
    figure.text(0, 0, ELSEWHERE, fontfamily=[first, *more])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # matplotlib's for a glyph that is missing
        figure.draw_without_rendering()
    assert not caplog.records


def test_a_character_missing_in_every_font_gives_one_warning(caplog):
    with caplog.at_level(logging.WARNING):
        families = families_for([NOWHERE, f"{NOWHERE}a"])
    if len(families) > 1:
        pytest.skip("an installed font has it")
    [record] = caplog.records
    expected = f"characters in no installed font, drawn as boxes: 1, such as {NOWHERE}"
    assert record.getMessage() == expected


def test_short_names_are_as_short_as_tells_them_apart():
    paths = [Path("runs/a"), Path("runs/b")]
    assert short_names(paths) == ["a", "b"]
    assert short_names([*paths, Path("older/a")]) == ["runs/a", "runs/b", "older/a"]
    assert short_names([Path("/far/x/1"), Path("/far/y/1")]) == ["x/1", "y/1"]
