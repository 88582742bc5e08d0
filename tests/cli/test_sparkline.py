"""Numbers as blocks."""

import pytest

from tf_transformer.cli.tools.curves import sparkline


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1], "▁"),
        ([2, 2, 2], "▁▁▁"),
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([31.5, -2, 31.5], "█▁█"),
    ],
)
def test_heights_go_from_the_smallest_to_the_largest(values, expected):
    assert sparkline(values) == expected


def test_of_many_numbers_some_are_shown_and_the_last():
    line = sparkline([*range(1_000), -1_000], width=10)
    assert len(line) == 10
    assert line[-1] == "▁" and line[-2] == "█"
