"""The line that a check prints."""

import pytest

from tf_transformer.doctor.findings import Count, Finding, judge, percent


@pytest.mark.parametrize(
    ("share", "text"),
    [(0, "0%"), (1, "100%"), (0.256, "26%"), (0.0123, "1.2%"), (1 / 29_000, "0.0034%")],
)
def test_a_small_share_is_not_shown_as_zero(share, text):
    assert percent(share) == text


def test_a_line_begins_with_its_verdict():
    assert str(Finding("case", "fine")) == "ok       case: fine"
    assert str(Finding("case", "odd", warning=True)) == "warning  case: odd"


def test_every_count_above_the_limit_is_a_warning_with_its_location():
    counts = [
        Count(2, 100, "lines of train", "train.en:7"),
        Count(1, 100, "lines of dev", "dev.en:3"),
        Count(3, 100, "lines of test", "test.en:1"),
    ]
    assert list(map(str, judge("dust", counts, 0.01, "are dusty: sweep."))) == [
        "warning  dust: 2 of 100 lines of train (2%) are dusty: sweep. First: train.en:7.",
        "warning  dust: 3 of 100 lines of test (3%) are dusty: sweep. First: test.en:1.",
    ]


def test_without_a_warning_the_worst_count_is_shown():
    counts = [Count(0, 50, "lines of train"), Count(1, 1_000, "lines of dev", "dev.en:9")]
    assert judge("dust", counts, 0.01, "") == [
        Finding("dust", "at most 1 of 1,000 lines of dev (0.1%). First: dev.en:9.")
    ]
    assert judge("dust", counts[:1], 0.01, "") == [Finding("dust", "none")]


def test_an_empty_text_has_no_defect():
    assert judge("dust", [Count(0, 0, "lines")], 0.0, "") == [Finding("dust", "none")]
