"""The picture of BLEU by length shows its figures and marks what training never saw."""

import pytest

pytest.importorskip("matplotlib")

from tf_transformer.evaluation.bleu import Interval  # noqa: E402
from tf_transformer.studies.lengths.measurements import Bucket, LengthCurve  # noqa: E402
from tf_transformer.studies.lengths.report import lengths_figure  # noqa: E402

GROUPS = [Bucket(1, 8, [0] * 30), Bucket(9, 16, [1] * 1200), Bucket(17, 30, [2] * 20)]


def curve(label: str, *values: float, longest: int = 16, limit: int = 1024) -> LengthCurve:
    intervals = [Interval(value, value - 2, value + 1, value / 50, "bs:9") for value in values]
    return LengthCurve(label, intervals, longest, limit)


def test_each_run_is_a_curve_with_its_intervals():
    figure = lengths_figure(
        GROUPS, [curve("runs/one", 40, 50, 5), curve("runs/two", 30, 20, 10)]
    )
    above, below = figure.axes
    containers = above.containers
    assert [each.get_label() for each in containers] == [
        "one, trained up to 16",
        "two, trained up to 16",
    ]
    for each, values in zip(containers, ([40, 50, 5], [30, 20, 10]), strict=True):
        line, _, [bars] = each.lines
        assert line.get_ydata().tolist() == values
        ends = [[point[1] for point in path] for path in bars.get_segments()]
        assert ends == [[value - 2, value + 1] for value in values]
    ratios = [line.get_ydata().tolist() for line in below.lines[:2]]
    assert ratios == [[0.8, 1, 0.1], [0.6, 0.4, 0.2]]
    labels = [label.get_text() for label in below.get_xticklabels()]
    assert labels == ["1–8\n30", "9–16\n1,200", "17–30\n20"]
    assert "bs:9" in below.get_xlabel()


def test_runs_are_told_apart_without_colour():
    figure = lengths_figure(GROUPS, [curve(str(number), 4, 5, 6) for number in range(5)])
    lines = [each.lines[0] for each in figure.axes[0].containers]
    assert len({line.get_marker() for line in lines}) == 5


def marks(*curves: LengthCurve) -> list[tuple[float, str]]:
    """The positions and texts of vertical lines."""
    above = lengths_figure(GROUPS, list(curves)).axes[0]
    drawn = {line.get_xdata()[0] for line in above.lines if len(set(line.get_xdata())) == 1}
    written = sorted((text.xy[0], text.get_text()) for text in above.texts)
    assert {place for place, _ in written} == drawn
    return written


def test_the_longest_of_training_is_marked_once_for_all():
    assert marks(curve("a", 1, 2, 3), curve("b", 1, 2, 3)) == [(16.5, "longest in training")]


def test_runs_of_other_lengths_have_lines_of_their_own():
    found = marks(curve("a", 1, 2, 3, longest=12), curve("b", 1, 2, 3, longest=20))
    assert found == [(12.5, "longest in training"), (20.5, "longest in training")]


def test_where_a_source_is_cut_is_marked_if_any_is():
    found = marks(curve("a", 1, 2, 3, limit=24), curve("b", 1, 2, 3, limit=31))
    assert found == [(16.5, "longest in training"), (24.5, "sources are cut")]
    at_once = marks(curve("a", 1, 2, 3, limit=16))  # as with learned positions
    assert at_once == [(16.5, "longest in training, sources are cut")]


def test_an_unknown_length_has_no_line():
    assert marks(curve("a", 1, 2, 3, longest=None)) == []
    legend = lengths_figure(GROUPS, [curve("a", 1, 2, 3, longest=None)]).axes[0].get_legend()
    assert [text.get_text() for text in legend.get_texts()] == [
        "a, trained up to an unknown length"
    ]
