"""Importance, the order of pruning and the curve, for a known loss."""

import itertools
import math

import pytest

from tf_transformer.studies.heads.measurements import Head, Measurements
from tf_transformer.studies.heads.study import curve, importances, iterative_order, order_of

A, B, C, D = HEADS = [Head("encoder", 1, 1), Head("decoder", 1, 1), Head("cross", 1, 1),
                      Head("cross", 1, 2)]  # fmt: skip


def loss(masked) -> float:
    """A and B are redundant: the model needs one of them more than anything else."""
    return (
        1
        + 0.2 * (C in masked)
        + 0.3 * (D in masked)
        + 5 * ({A, B} <= {*masked})
        + (0.1 * (B in masked))
    )


@pytest.fixture
def measurements(tmp_path) -> Measurements:
    functions = {"loss": loss, "bleu": lambda masked: 40 - 8 * loss(masked)}
    return Measurements(tmp_path / "measurements.jsonl", {}, functions)


def test_importance_is_the_change_from_masking_one_head(measurements):
    found = importances(HEADS, measurements, True)
    assert [each.head for each in found] == HEADS
    assert [each.loss_change for each in found] == pytest.approx([0, 0.1, 0.2, 0.3])
    assert [each.bleu_change for each in found] == pytest.approx([0, -0.8, -1.6, -2.4])
    assert order_of(found) == [A, B, C, D]


def test_without_bleu_only_the_loss_is_measured(measurements):
    found = importances(HEADS, measurements, False)
    points = curve(order_of(found), measurements, False)
    assert {each.bleu_change for each in found} | {point.bleu for point in points} == {None}


def test_iterative_order_keeps_one_of_two_redundant_heads(measurements):
    order = iterative_order(HEADS, measurements)
    assert order == [A, C, D, B]
    assert len(measurements) == 4 + 3 + 2 + 1
    # No other last head would give a lower loss here.
    least = min(loss(chosen) for chosen in itertools.combinations(HEADS, 3))
    assert loss(order[:3]) == least


def test_the_curve_goes_from_all_heads_to_none(measurements):
    points = curve([A, C, D, B], measurements, True)
    assert [point.kept for point in points] == [4, 3, 2, 1, 0]
    assert [point.masked for point in points] == [[], [A], [A, C], [A, C, D], [A, C, D, B]]
    assert [point.loss for point in points] == pytest.approx([1, 1, 1.2, 1.5, 6.6])
    assert [point.bleu for point in points] == pytest.approx(
        [40 - 8 * one.loss for one in points]
    )


@pytest.mark.parametrize("number", [24, 25, 48, 144])
def test_a_curve_of_many_heads_has_few_points(measurements, number):
    heads = [Head("cross", 1, each) for each in range(number)]
    kept = [point.kept for point in curve(heads, measurements, False)]
    assert kept[0] == number and kept[-1] == 0
    assert len(kept) <= 25
    assert {a - b for a, b in itertools.pairwise(kept)} <= {math.ceil(number / 24), 1}
