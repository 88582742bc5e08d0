"""The ladder's picture shows the table of the results page."""

import pytest

from tools.ladder import PAGE, Rung, ladder_figure, rungs

TABLE = """
**What each change gains**, on `val`:

| | dev BLEU | gain | CPU time |
|---|---|---|---|
| [earlier](#earlier), two runs | 39.0, 40.0 | | 1 h |
| with `tune` | 41.5 ± 0.2 | +1 | |

Text below.
"""


def test_a_row_becomes_a_mean_with_its_spread():
    assert rungs(TABLE) == [
        Rung("earlier, two runs", 39.5, 0.5, "1 h"), Rung("with tune", 41.5, 0.2, "")
    ]  # fmt: skip


def test_the_picture_has_a_point_for_each_row_of_the_page():
    pytest.importorskip("matplotlib")
    ladder = rungs(PAGE.read_text("utf-8"))
    axes = ladder_figure(ladder).axes[0]
    assert [label.get_text() for label in axes.get_yticklabels()] == [r.name for r in ladder]
    points = [line.get_xydata()[0] for line in axes.lines if line.get_marker() == "o"]
    assert [tuple(point) for point in points] == [(r.bleu, n) for n, r in enumerate(ladder)]
