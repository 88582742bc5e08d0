"""Errors are one line and quote input briefly."""

import pytest

from tf_transformer.errors import one_line, quoted, shortened


@pytest.mark.parametrize(
    ("message", "line"),
    [
        ("plain, ä, 水 and \u200c", "plain, ä, 水 and \u200c"),
        ("two\nlines\r\tand a tab", r"two\nlines\r\tand a tab"),
        ("\x1b[31m\u2028\x85", r"\x1b[31m\u2028\x85"),
        ("r\udcffn", r"r\udcffn"),
    ],
)
def test_a_message_becomes_one_line_of_utf8(message, line):
    assert one_line(message) == line
    assert line.encode()


def test_a_long_message_keeps_its_beginning_and_its_end():
    line = one_line(f"name {'x' * 100_000} what to do")
    assert len(line) < 2_100
    assert line.startswith("name xxx")
    assert line.endswith("xxx what to do")


@pytest.mark.parametrize("value", ["x" * 300_000, [["x" * 999] * 999] * 999, int("9" * 4_000)])
def test_a_quotation_is_short(value):
    assert len(quoted(value)) < 210


def test_short_values_are_quoted_whole():
    assert quoted("four") == "'four'"
    assert quoted(1e30) == "1e+30"
    assert shortened("x" * 80) == "x" * 80
    assert shortened("x" * 81) == "x" * 80 + "..."
