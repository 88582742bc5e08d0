"""The printed table and its chart: results, differences from base, parameter counts."""

from pathlib import Path

import pytest

from tf_transformer.config import Config
from tf_transformer.evaluation.comparison import Spread
from tf_transformer.run import Run
from tf_transformer.studies.ablation.rows import ROWS, Scale, plan_rows
from tf_transformer.studies.ablation.table import (
    Compared,
    caption,
    draw_differences,
    parameters_table,
    results_table,
)
from tf_transformer.studies.cost import TABLE3_PRINTED


def row(name, perplexities, bleus):
    printed = TABLE3_PRINTED[ROWS[name]]
    spreads = Spread.of(perplexities), Spread.of(bleus)
    return Compared(name, f"of {name}", *spreads, 12_345_678, printed)


COMPARED = [
    row("base", [10.0, 12.0], [20.0, 21.0]),
    row("C-N2", [14.0, 15.0], [18.0, 17.0]),
    row("big", [8.0], [24.25]),
]


def cells(table):
    return [[str(cell) for cell in row] for row in table.rows]


def test_a_line_has_our_results_and_the_papers_with_differences_from_base():
    table = results_table(COMPARED)
    base, small, big = cells(table)
    assert len(table.header) == 12
    assert base[2:] == [
        "11.00 ± 1.41", "", "4.92", "", "20.50 ± 0.71", "", "25.8", "", "12.3", "65",
    ]  # fmt: skip
    assert small[:2] == ["C-N2", "of C-N2"]
    assert small[2:10] == [
        "14.50 ± 0.71", "+3.50", "6.11", "+1.19", "17.50 ± 0.71", "-3.00", "23.7", "-2.1",
    ]  # fmt: skip
    assert big[2:] == [
        "8.00", "-3.00", "4.33", "-0.59", "24.25", "+3.75", "26.4", "+0.6", "12.3", "213",
    ]  # fmt: skip


def test_without_base_only_the_paper_has_differences():
    rows = COMPARED[1:]
    for line in cells(results_table(rows)):
        assert (line[3], line[7]) == ("", "")
        assert line[5] and line[9]


def draw(path, ours=10.0, *more):
    """Draws C-N2, whose perplexity is above base in the paper, and big."""
    pytest.importorskip("matplotlib")
    rows = [row("base", [9.0], [20.0]), row("C-N2", [ours, *more], [18.0]), COMPARED[2]]
    draw_differences(rows, path)
    return path


def test_a_chart_needs_no_colour(tmp_path):
    image = pytest.importorskip("matplotlib.image")
    pixels = image.imread(draw(tmp_path / "chart.png"))[..., :3]
    assert pixels.max() == 1 and pixels.min() < 0.1
    assert (pixels == pixels[..., :1]).all()


def test_a_chart_shows_our_results_and_their_spread(tmp_path):
    pictures = [
        draw(tmp_path / f"{i}.png", *figures).read_bytes()
        for i, figures in enumerate([(10.0,), (10.0,), (8.0,), (9.0, 11.0)])
    ]
    assert pictures[0] == pictures[1]
    assert len(set(pictures)) == 3


def test_a_chart_marks_rows_that_disagree_with_the_paper(tmp_path):
    note = "not in the paper's direction"
    assert note in draw(tmp_path / "opposite.svg", 8.0).read_text("utf-8")
    assert note not in draw(tmp_path / "agree.svg", 10.0).read_text("utf-8")


def test_a_caption_describes_the_experiment():
    config = Config().replace({"data.train": ["a/x"], "data.source": "en"})
    run = Run(Path("run"), config)
    text = caption(config, {"base": [run, run], "big": [run]})
    for part in ("d_model 512", "100,000 steps", "a/x en-", "seeds per row: 1 to 2", "tok:13a"):
        assert part in text


def parameters(vocab_size):
    """Returns our parameter count and the paper's, in millions, for rows where it has one."""
    configs = plan_rows(list(ROWS), Scale.of(1), {"model.vocab_size": vocab_size}, ())
    lines = cells(parameters_table(configs))
    return {
        line[0]: (round(int(line[2].replace(",", "")) / 1e6), int(line[5]))
        for line in lines
        if line[5]
    }


def test_with_41_100_pieces_every_row_but_big_has_the_papers_parameters():
    found = parameters(41_100)
    assert len(found) == 11
    assert [row for row, (ours, paper) in found.items() if ours != paper] == ["big"]


def test_with_37_000_pieces_every_row_but_big_is_smaller():
    for row, (ours, paper) in parameters(37_000).items():
        assert (ours > paper) if row == "big" else (ours < paper), row


def test_the_papers_parameter_counts_contradict_each_other():
    """The parameters of C-d1024 and big differ only by d_ff: two matrices of d_model x 2048 and
    a bias more in each of 6 layers of encoder and decoder."""
    more = 12 * (2 * 1024 * 2048 + 2048) / 1e6
    found = parameters(37_000)
    assert found["big"][0] - found["C-d1024"][0] == pytest.approx(more, abs=1)
    assert more - (found["big"][1] - found["C-d1024"][1]) > 5
