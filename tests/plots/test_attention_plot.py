"""The picture of attention shows its weights, with the right labels."""

import dataclasses
import sys

import numpy as np
import pytest

from tf_transformer.errors import UserError

pytest.importorskip("matplotlib")

from tf_transformer.plots.attention import Heatmaps, attention_figure, draw_attention  # noqa: E402

ROWS, COLUMNS = ["▁Das", "▁kostet", "▁5", "$", "</s>"], ["▁That", "▁costs", "</s>"]


def maps(heads: int, **changes) -> Heatmaps:
    rng = np.random.default_rng(0)
    weights = rng.dirichlet(np.ones(len(COLUMNS)), (heads, len(ROWS)))
    panels = {f"head {number}": one for number, one in enumerate(weights, start=1)}
    whole = Heatmaps("of a layer", panels, ROWS, COLUMNS, "target", "source")
    return dataclasses.replace(whole, **changes)


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


def test_larger_weights_are_darker_also_without_colour():
    [image] = panels_of(attention_figure(maps(1)))[0].images
    red_green_blue = image.cmap(np.linspace(0, 1, 256))[:, :3]
    luminance = red_green_blue @ (0.2126, 0.7152, 0.0722)  # ITU-R BT.709
    assert np.all(np.diff(luminance) < 0)


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
