"""Significance tests, and means over seeds."""

import itertools

import numpy as np
import pytest

from tf_transformer.evaluation.comparison import Spread, paired_tests
from tf_transformer.evaluation.metrics import Ratio, make_metric

ROWS = 10
RNG = np.random.default_rng(5)
BASELINE = RNG.integers(0, 60, ROWS)
# Hardly any exchanges tie with the actual difference; sacreBLEU does not count ties.
OTHER = BASELINE + (3.1, -2.07, 5.013, 8.2, -4.5, 1.01, 6.3, -1.17, 2.9, 4.4)
SYSTEMS = [[str(number) for number in numbers] for numbers in (BASELINE, OTHER, BASELINE)]


@pytest.fixture(scope="module")
def tested():
    metric = Ratio("value", "1", lambda lines: [[float(line), 1.0] for line in lines])
    return paired_tests(metric, SYSTEMS)


def test_randomisation_agrees_with_all_possible_exchanges(tested):
    gains = OTHER - BASELINE
    signs = np.array(list(itertools.product((-1, 1), repeat=ROWS)))
    exact = np.mean(np.abs(signs @ gains) >= abs(gains.sum()))
    assert 0.005 < exact < 0.5  # a case that could fail
    assert tested[1].randomisation == pytest.approx(exact, abs=0.015)


def test_intervals_are_those_of_resampled_sentences(tested):
    rows = RNG.integers(0, ROWS, (20_000, ROWS))
    for interval, values in zip(tested, (BASELINE, OTHER), strict=False):
        low, high = np.percentile(values[rows].mean(axis=1), (2.5, 97.5))
        assert (interval.low, interval.high) == pytest.approx((low, high), abs=1.5)


def test_the_first_has_no_p_value_and_an_equal_system_one_of_1(tested):
    assert (tested[0].bootstrap, tested[0].randomisation) == (None, None)
    assert (tested[2].bootstrap, tested[2].randomisation) == (1.0, 1.0)


def test_a_difference_of_zero_is_no_difference():
    lines = ["a b c d e", "f g h i j"]
    spaced = [line.replace(" ", "  ") for line in lines]  # chrF ignores spaces
    _, other = paired_tests(make_metric("chrf", [lines]), [lines, spaced])
    assert (other.bootstrap, other.randomisation) == (1.0, 1.0)


def test_bleu_and_chrf_are_tested_too():
    lines = ["the cat sat on the mat .", "a dog ran through the park", "it is raining today"]
    worse = [" ".join(line.split()[::-1]) for line in lines]
    for name in ("bleu", "chrf"):
        metric = make_metric(name, [lines])
        mixed = [lines[0], "x", "y"], [lines[0], lines[1], "x"]
        first, second, low, high = paired_tests(metric, [lines, worse, *mixed])
        assert first.low == pytest.approx(100) and second.low < 70
        assert 0 < second.bootstrap <= 1 and 0 < second.randomisation <= 1
        assert (low.low, high.high) == (0, 100)  # mean ± half width alone would exceed these


def test_a_spread_is_the_standard_deviation_of_a_sample():
    values = [3.0, 4.5, 4.0]
    spread = Spread.of(values)
    assert spread.mean == pytest.approx(np.mean(values))
    assert spread.deviation == pytest.approx(np.std(values, ddof=1))
    assert Spread.of([3.0]) == Spread(3.0, None)
    assert [str(Spread(3.456, 0.5)), str(Spread(3.0))] == ["3.46 ± 0.50", "3.00"]


def test_a_ratio_divides_sums_and_is_zero_without_any():
    parts = {"half": (50, 1), "none": (0, 4), "left out": (0, 0)}
    metric = Ratio("F1", "1", lambda outputs: [parts[each] for each in outputs])
    assert metric.corpus_score(["half", "none", "left out"], None).score == 10
    assert metric.corpus_score(["left out"], None).score == 0
