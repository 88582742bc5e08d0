"""The chart of Table 3."""

import pytest

from tf_transformer.studies.ablation.plot import draw_differences
from tf_transformer.studies.ablation.table import Difference

plt = pytest.importorskip("matplotlib.image")


def draw(path, ours=1.0, deviation=None):
    rows = [Difference("A-h1", ours, -0.5, deviation), Difference("big", -2.0, 0.6)]
    draw_differences({"perplexity": rows, "BLEU": rows}, path)
    return path


def test_a_chart_needs_no_colour(tmp_path):
    pixels = plt.imread(draw(tmp_path / "chart.png"))[..., :3]
    assert pixels.max() == 1 and pixels.min() < 0.1
    assert (pixels == pixels[..., :1]).all()


def test_a_chart_shows_our_figures_and_their_spread(tmp_path):
    pictures = [
        draw(tmp_path / f"{i}.png", *figures).read_bytes()
        for i, figures in enumerate([(1.0,), (1.0,), (-1.0,), (1.0, 0.4)])
    ]
    assert pictures[0] == pictures[1]
    assert len(set(pictures)) == 3


def test_a_chart_can_be_a_vector_drawing(tmp_path):
    text = draw(tmp_path / "chart.svg").read_text("utf-8")
    assert text.count("<svg ") == 1


def test_a_chart_says_which_rows_do_not_agree_with_the_paper(tmp_path):
    note = "not in the paper's direction"
    assert note in draw(tmp_path / "opposite.svg", ours=1.0).read_text("utf-8")
    both = [Difference("A-h1", -1.0, -0.5), Difference("big", 2.0, 0.6)]
    draw_differences({"BLEU": both}, tmp_path / "agree.svg")
    assert note not in (tmp_path / "agree.svg").read_text("utf-8")
