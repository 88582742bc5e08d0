"""The pictures of heads show their numbers, without colour."""

import numpy as np
import pytest

pytest.importorskip("matplotlib")

from matplotlib.image import imread  # noqa: E402

from tf_transformer.plots.figure import save  # noqa: E402
from tf_transformer.studies.heads.plot import importance_figure, pruning_figure  # noqa: E402

VALUES = {
    "encoder self-attention": np.array([[0.1, -0.2, 0.0], [0.3, 0.4, 0.5]]),
    "cross-attention": np.array([[1.0, 0.9, 0.8], [0.7, 0.65, 0.6]]),
}


def panels_of(figure) -> list:
    return [axes for axes in figure.axes if axes.images]


def test_each_head_has_a_cell_with_its_number():
    figure = importance_figure([("rise in loss", "+z.2f", VALUES)], "of a model")
    panels = panels_of(figure)
    assert [axes.get_title() for axes in panels] == list(VALUES)
    for axes, values in zip(panels, VALUES.values(), strict=True):
        [image] = axes.images
        np.testing.assert_array_equal(image.get_array(), values)
        assert image.get_clim() == (0, 1)
        written = {(text.get_position(), text.get_text()) for text in axes.texts}
        assert written == {
            ((head, layer), f"{value:+.2f}") for (layer, head), value in np.ndenumerate(values)
        }
    assert [label.get_text() for label in panels[0].get_xticklabels()] == ["1", "2", "3"]
    assert figure.get_supxlabel() == "head" and figure.get_supylabel() == "layer"
    [bar] = [axes for axes in figure.axes if not axes.images]
    assert bar.get_ylabel() == "rise in loss"


def test_numbers_are_readable_on_any_grey():
    for axes in panels_of(importance_figure([("a", "+.2f", VALUES)], "b")):
        [image] = axes.images
        for text in axes.texts:
            *color, _ = image.cmap(image.norm(float(text.get_text())))
            dark = float(np.mean(color)) < 0.5
            assert text.get_color() == ("white" if dark else "black")


def test_a_model_without_important_heads_can_be_drawn():
    zeros = {"cross-attention": -np.ones((1, 2))}
    [axes] = panels_of(importance_figure([("a", "+.2f", zeros)], "b"))
    assert axes.images[0].get_clim()[1] > 0


def test_the_pruning_curve_has_a_point_for_each_number_of_heads(tmp_path):
    figure = pruning_figure([4, 2, 0], {"BLEU": [30, 20, 1], "loss": [1, 2, 3]}, "pruned")
    bleu, loss = figure.axes
    assert (bleu.get_ylabel(), loss.get_ylabel()) == ("BLEU", "loss")
    assert bleu.get_xlabel() == "heads kept, of 4"
    whole, curve = bleu.lines
    assert curve.get_xydata().tolist() == [[4, 30], [2, 20], [0, 1]]
    assert set(whole.get_ydata()) == {30}
    save(figure, tmp_path / "a.png")
    pixels = imread(tmp_path / "a.png")[..., :3]
    assert (pixels == pixels[..., :1]).all()
