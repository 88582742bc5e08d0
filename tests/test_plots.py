"""Pictures: fonts for every character, learning curves, attention with the right labels."""

import logging
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure  # noqa: E402
from matplotlib.font_manager import FontProperties, findfont  # noqa: E402
from matplotlib.ft2font import FT2Font  # noqa: E402

from tf_transformer.base.errors import UserError  # noqa: E402
from tf_transformer.plots import (  # noqa: E402
    DEFAULT_FONT,
    Heatmaps,
    LearningCurve,
    attention_figure,
    draw_attention,
    draw_curves,
    families_for,
    short_names,
)

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


# --- Learning curves --------------------------------------------------------------------


def curve(label: str, **more: float) -> LearningCurve:
    names = ("step", "perplexity", "valid_perplexity", "valid_bleu")
    rows = (10, 9.0, 7.0, 0.9), (20, 8.0, 6.0, 0.5)
    records = [dict(zip(names, row, strict=True)) | more for row in rows]
    return LearningCurve(label, records, records[1])


def test_perplexity_and_bleu_stand_side_by_side(tmp_path):
    curves = [curve("one"), curve("two")]
    draw_curves(curves, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text("utf-8")
    assert text.count("<!-- perplexity -->") == text.count("<!-- dev BLEU -->") == 1
    assert all(f"<!-- {each.label}, highest 0.5 -->" in text for each in curves)


def test_legends_cover_no_line(tmp_path, monkeypatch):
    drawn, savefig = [], Figure.savefig

    def keep(figure, *arguments, **options):
        drawn.append(figure)
        savefig(figure, *arguments, **options)

    monkeypatch.setattr(Figure, "savefig", keep)
    draw_curves([curve(f"run {number}") for number in range(6)], tmp_path / "c.png")
    drawn[0].draw_without_rendering()
    for axes in drawn[0].axes:
        legend = axes.get_legend().get_window_extent()
        assert legend.y1 < axes.xaxis.get_tightbbox().y0 < axes.bbox.y0


def test_the_old_dev_set_of_a_fine_tuned_run_is_drawn_beside_the_new_one(tmp_path):
    curves = [curve("general"), curve("law", valid_old_bleu=0.4)]
    draw_curves(curves, tmp_path / "curves.svg")
    text = (tmp_path / "curves.svg").read_text("utf-8")
    assert "<!-- law, old dev set -->" in text and "<!-- general, old" not in text


# --- Attention --------------------------------------------------------------------------

ROWS, COLUMNS = ["▁Das", "▁kostet", "▁5", "$", "</s>"], ["▁That", "▁costs", "</s>"]


def maps(heads: int, **changes) -> Heatmaps:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(len(COLUMNS)), (heads, len(ROWS)))
    panels = {f"head {number}": one for number, one in enumerate(weights, start=1)}
    whole = Heatmaps("of a layer", panels, ROWS, COLUMNS, "target", "source")
    return replace(whole, **changes)


def panels_of(figure) -> list:
    return [axes for axes in figure.axes if axes.images]


def labels(axis) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


@pytest.mark.parametrize("heads", [1, 2, 3, 8])
def test_each_panel_shows_its_weights_on_one_scale(heads):
    drawn = maps(heads)
    found = panels_of(attention_figure(drawn))
    assert [axes.get_title() for axes in found] == list(drawn.panels)
    largest = max(weights.max() for weights in drawn.panels.values())
    for axes, weights in zip(found, drawn.panels.values(), strict=True):
        np.testing.assert_array_equal(axes.images[0].get_array(), weights)
        assert axes.images[0].get_clim() == (0, largest)


def test_only_outer_panels_have_labels():
    """Seven panels in rows of three: the last two of the second row have no panel below."""
    found = panels_of(attention_figure(maps(7)))
    for index, axes in enumerate(found):
        assert labels(axes.yaxis) == (ROWS if index in (0, 3, 6) else [])
        assert labels(axes.xaxis) == (COLUMNS if index in (4, 5, 6) else [])


@pytest.mark.parametrize(
    ("heads", "columns"), [(1, 1), (4, 2), (6, 3), (7, 3), (8, 4), (16, 4)]
)
def test_panels_fill_a_grid(heads, columns):
    found = panels_of(attention_figure(maps(heads)))
    assert {axes.get_gridspec().ncols for axes in found} == {columns}


def test_axes_and_colour_bar_are_labelled():
    figure = attention_figure(maps(2))
    assert figure.get_supylabel() == "target"
    assert figure.get_supxlabel() == "source"
    assert figure.get_suptitle() == "of a layer"
    [bar] = [axes for axes in figure.axes if not axes.images]
    assert bar.get_ylabel() == "attention weight"


def test_pieces_are_not_rendered_as_formulas(tmp_path):
    drawn = maps(1, rows=["$x^2$", "$\\frac$", "_", "$", "%"])
    draw_attention(drawn, tmp_path / "a.svg")  # as a formula, "$\\frac$" would be an error
    assert "<!-- $x^2$ -->" in (tmp_path / "a.svg").read_text("utf-8")


def test_a_link_is_a_box_around_the_cells_of_its_words():
    drawn = maps(1, links=[(range(2, 4), range(1, 2))])
    [axes] = panels_of(attention_figure(drawn))
    [box] = axes.patches
    # Cell i is from i - 0.5 to i + 0.5.
    assert box.get_bbox().extents.tolist() == [0.5, 1.5, 1.5, 3.5]


@pytest.mark.parametrize("heads", [1, 4])
def test_labels_of_a_long_sentence_do_not_overlap(heads):
    pieces = [f"▁word{number}" for number in range(70)]
    weights = np.eye(70)
    panels = {f"head {number}": weights for number in range(heads)}
    figure = attention_figure(maps(1, panels=panels, rows=pieces, columns=pieces))
    figure.set_dpi(120)
    figure.draw_without_rendering()
    axes = panels_of(figure)[0 if heads == 1 else 2]  # with both labels
    for axis, side in ((axes.xaxis, "x"), (axes.yaxis, "y")):
        boxes = [label.get_window_extent() for label in axis.get_ticklabels()]
        edges = sorted((getattr(box, f"{side}0"), getattr(box, f"{side}1")) for box in boxes)
        assert len(edges) == 70
        assert all(end <= start for (_, end), (start, _) in zip(edges, edges[1:], strict=False))


@pytest.mark.parametrize(
    ("suffix", "beginning"), [(".png", b"\x89PNG\r\n"), (".svg", b"<?xml")]
)
def test_a_picture_is_written_in_either_format(tmp_path, suffix, beginning):
    path = tmp_path / "new" / f"attention{suffix}"
    draw_attention(maps(2), path)
    assert path.read_bytes().startswith(beginning)
    assert [one.name for one in path.parent.iterdir()] == [path.name]


def test_a_huge_picture_is_refused_before_it_is_drawn(tmp_path):
    with pytest.raises(UserError, match="inches; the limit is 100. Draw a single head"):
        draw_attention(maps(1, columns=["a"] * 900), tmp_path / "a.png")


def test_without_matplotlib_the_error_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(UserError, match=r'pip install "tf-transformer\[plot\]"'):
        draw_attention(maps(1), tmp_path / "a.png")
