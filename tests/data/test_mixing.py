"""Corpora with weights: their shares, their coverage, and the exact plan of their batches."""

import itertools
from collections import Counter

import numpy as np
import pytest

from tf_transformer.config import DataConfig
from tf_transformer.config.data import mix_weights
from tf_transformer.data.batching import BatchPlan, Mixture
from tf_transformer.errors import UserError

SIZES = [900, 100]


def plan_of(mix: str, seed: int = 1) -> BatchPlan:
    lengths = np.random.default_rng(0).integers(2, 40, [2, sum(SIZES)], dtype=np.int32)
    options = {"batch_tokens": 512, "max_length": 40, "seed": seed}
    return BatchPlan(*lengths, **options, mixture=Mixture(SIZES, mix, seed))


def rows_of(plan: BatchPlan, epochs: int, first: int = 0) -> list[np.ndarray]:
    steps = plan.steps_per_epoch
    return [plan.batch(step).rows for step in range(first * steps, (first + epochs) * steps)]


@pytest.mark.parametrize(
    ("mix", "share"),
    [("1:4", 0.8), ("9:1", 0.1), ("temperature=1", 0.1), ("temperature=2", 0.25)],
)
def test_corpora_have_the_shares_of_their_weights(mix, share):
    """By temperature 2, 30 to 10: the roots of 900 and 100."""
    plan = plan_of(mix)
    rows = np.concatenate(rows_of(plan, epochs=20))
    # A few lengths, of which each takes a whole number of pairs.
    assert np.mean(rows >= SIZES[0]) == pytest.approx(share, abs=0.02)
    assert len(rows) / 20 == pytest.approx(sum(SIZES), rel=0.02)


@pytest.mark.parametrize("mix", ["1:4", "1:99", "99:1"])
def test_every_pair_comes_as_often_as_the_others_of_its_corpus_and_length(mix):
    lengths = np.repeat([8, 16, 24], [300, 400, 300])
    mixture = Mixture([500, 500], mix, seed=3)
    for length in (8, 16, 24):
        pairs = np.flatnonzero(lengths == length)
        drawn = [mixture.rows(pairs, length, epoch) for epoch in range(150)]
        assert len({len(rows) for rows in drawn}) == 1
        counts = Counter(np.concatenate(drawn).tolist())
        for part in (pairs[pairs < 500], pairs[pairs >= 500]):
            times = {counts[pair] for pair in part}
            assert not part.size or (max(times) - min(times) <= 1 and max(times) > 0)


def test_batches_are_a_pure_function_of_seed_and_step():
    plan, again = plan_of("1:4"), plan_of("1:4")
    steps = [5, 0, 3 * plan.steps_per_epoch + 2, 1, plan.steps_per_epoch]
    for step in steps:
        np.testing.assert_array_equal(again.batch(step).rows, plan_of("1:4").batch(step).rows)
    assert [rows.tolist() for rows in rows_of(plan, 1, first=2)] == [
        rows.tolist() for rows in rows_of(again, 1, first=2)
    ]
    for one, other in itertools.combinations(
        (rows_of(plan, 1), rows_of(plan, 1, first=1), rows_of(plan_of("1:4", seed=2), 1)), 2
    ):
        assert [rows.tolist() for rows in one] != [rows.tolist() for rows in other]


def test_an_epoch_has_as_many_steps_as_any_other():
    plan = plan_of("1:9")
    shapes = [
        Counter((len(plan.batch(step).rows), plan.batch(step).length) for step in steps)
        for steps in np.arange(4 * plan.steps_per_epoch).reshape(4, -1)
    ]
    assert all(each == shapes[0] for each in shapes)


def test_the_summary_says_how_often_a_pair_comes():
    assert Mixture([100, 300], "1:1", 1).summary(["a", "b"]) == (
        "mix: a 50.0%, each pair 2 times an epoch; b 50.0%, each pair 0.667 times an epoch"
    )


@pytest.mark.parametrize("mix", ["1", "1:2:3", "a:b", "1:", "warmth=5", "temperature=1:2"])
def test_a_mix_that_does_not_fit_the_corpora_is_refused(mix):
    with pytest.raises(UserError, match="one for each of the 2 --train. Received: "):
        DataConfig(train=("a", "b"), mix=mix)


@pytest.mark.parametrize("mix", ["0:0", "1:0", "1:-1", "nan:1", "inf:1", "temperature=0"])
def test_weights_that_are_not_positive_are_refused(mix):
    with pytest.raises(UserError, match="must be above 0. Received: "):
        mix_weights(mix, [1, 1])


def test_a_temperature_near_zero_leaves_the_largest_corpus():
    assert mix_weights("temperature=0.001", [29_000, 10]) == [1.0, 0.0]
