"""Plans of batches limited in tokens: shapes, coverage, reproducibility, and mixed corpora."""

import itertools
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.config import DataConfig
from tf_transformer.config.settings import mix_weights
from tf_transformer.data.plan import (
    Batch,
    BatchPlan,
    Mixture,
    bucket_boundaries,
    fitted_boundaries,
)

SIZES = [900, 100]  # of two corpora, together as many pairs as `make_plan` has by default


def random_lengths(count: int, longest: int = 64) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    return rng.integers(2, longest + 1, [2, count], dtype=np.int32)


def make_plan(
    count: int = 1000, batch_tokens: int = 256, seed: int = 1, mix: str = ""
) -> BatchPlan:
    mixture = Mixture(SIZES, mix, seed) if mix else None
    lengths = random_lengths(count)
    return plan_of(*lengths, batch_tokens=batch_tokens, seed=seed, mixture=mixture)


def plan_of(*lengths: Sequence[int], **options) -> BatchPlan:
    """A plan for pairs of these source and target lengths, or for the same on both sides."""
    sides = np.array(lengths * 2 if len(lengths) == 1 else lengths)
    return BatchPlan(*sides, **{"max_length": 64, "seed": 1} | options)


def epoch_pairs(plan: BatchPlan, epoch: int) -> list[np.ndarray]:
    first = epoch * plan.steps_per_epoch
    return [plan.batch(first + index).indices for index in range(plan.steps_per_epoch)]


@pytest.mark.parametrize("max_length", [1, 4, 7, 8, 9, 30, 33, 100, 256, 1000, 1024])
def test_boundaries_are_few_close_and_end_at_max_length(max_length):
    boundaries = bucket_boundaries(max_length)
    assert boundaries[-1] == -(-max_length // 4) * 4
    assert all(length % 4 == 0 for length in boundaries)
    for shorter, longer in itertools.pairwise(boundaries[:-1]):
        assert longer - shorter >= max(4, shorter / 8)
        assert longer - shorter < max(4, shorter / 8) + 4
    assert len(boundaries) <= 34  # of 256 multiples of 4 up to 1024


@pytest.mark.parametrize("epoch", [0, 1, 5])
@pytest.mark.parametrize("count", [1, 7, 1000])
def test_each_pair_is_in_exactly_one_batch_of_an_epoch(count, epoch):
    plan = make_plan(count)
    assert sorted(np.concatenate(epoch_pairs(plan, epoch))) == list(range(count))


def test_batches_hold_at_most_batch_tokens_positions_of_a_side():
    plan = make_plan(batch_tokens=250)
    boundaries = bucket_boundaries(64)
    assert all(rows == 250 // length for rows, length in plan.shapes)
    assert {length for _, length in plan.shapes} <= set(boundaries)


def test_pairs_fit_into_their_batch_on_both_sides():
    plan, (source, target) = make_plan(), random_lengths(1000)
    for step in range(plan.steps_per_epoch):
        batch = plan.batch(step)
        assert max(source[batch.indices].max(), target[batch.indices].max()) <= batch.length


def test_only_one_batch_of_an_epoch_is_not_full():
    plan = make_plan()
    partial = [
        batch
        for batch in map(plan.batch, range(plan.steps_per_epoch))
        if len(batch.indices) < batch.num_rows
    ]
    assert len(partial) == 1
    assert partial[0].length == max(length for _, length in plan.shapes)


@pytest.mark.parametrize("mix", ["", "1:9"])
def test_shapes_and_steps_are_the_same_in_every_epoch_and_for_every_seed(mix):
    plan, other = make_plan(mix=mix), make_plan(mix=mix, seed=7)
    epochs = [
        Counter(
            (batch.length, batch.num_rows, len(batch.indices))
            for batch in map(plan.batch, steps)
        )
        for steps in np.arange(4 * plan.steps_per_epoch).reshape(4, -1)
    ]
    assert all(epoch == epochs[0] for epoch in epochs)
    assert sorted({(length, rows) for length, rows, _ in epochs[0]}) == [
        (length, rows) for rows, length in plan.shapes
    ]
    assert (other.shapes, other.steps_per_epoch) == (plan.shapes, plan.steps_per_epoch)


def test_pairs_left_over_join_the_next_longer_bucket():
    plan = plan_of([5] * 9 + [12] * 4, batch_tokens=60)
    assert plan.shapes == [(7, 8), (5, 12)]
    assert sorted(map(len, epoch_pairs(plan, 0))) == [1, 5, 7]


@pytest.mark.parametrize("mix", ["", "1:4"])
def test_plan_depends_on_seed_and_step_alone(mix):
    one, other = make_plan(mix=mix), make_plan(mix=mix)
    steps = [0, 2 * one.steps_per_epoch + 5, 3, one.steps_per_epoch]
    backwards = {step: other.batch(step) for step in reversed(steps)}
    for step in steps:
        np.testing.assert_array_equal(one.batch(step).indices, backwards[step].indices)


@pytest.mark.parametrize("mix", ["", "1:4"])
def test_order_differs_between_epochs_and_seeds(mix):
    plan, other = make_plan(mix=mix), make_plan(mix=mix, seed=2)
    epochs = [epoch_pairs(plan, 0), epoch_pairs(plan, 1), epoch_pairs(other, 0)]
    assert len({tuple(np.concatenate(rows)) for rows in epochs}) == 3


@pytest.mark.parametrize("most", [1, 2, 3, 4])
def test_fitted_lengths_leave_the_least_padding_of_all(most):
    lengths = np.random.default_rng(most).choice([3, 8, 9, 12, 19, 30, 31, 45], 60)
    ends = [8, 12, 20, 32, 48]  # those of the lengths, as multiples of 4

    def positions(boundaries: Sequence[int]) -> int:
        return sum(min(end for end in boundaries if end >= length) for length in lengths)

    sets = [itertools.combinations(ends, count) for count in range(1, most + 1)]
    choices = [choice for choice in itertools.chain(*sets) if 48 in choice]
    fewest = min(map(positions, choices))
    enough = [choice for choice in choices if positions(choice) <= 1.01 * fewest]
    count = min(map(len, enough))
    best = min(positions(choice) for choice in enough if len(choice) == count)
    fitted = fitted_boundaries(lengths, most)
    assert (len(fitted), positions(fitted), fitted[-1]) == (count, best, 48)


@pytest.mark.parametrize("mix", ["", "1:9"])
def test_a_plan_of_few_shapes_has_each_pair_in_a_batch_that_it_fits_into(mix):
    mixture = Mixture(SIZES, mix, 1) if mix else None
    lengths = random_lengths(1000)
    plan = plan_of(*lengths, batch_tokens=256, mixture=mixture, most_shapes=4)
    assert [length for _, length in plan.shapes][-1] == 64
    assert len(plan.shapes) == 4 < len(make_plan(mix=mix).shapes)
    batches = [plan.batch(step) for step in range(3 * plan.steps_per_epoch)]
    assert all(np.max(lengths, 0)[batch.indices].max() <= batch.length for batch in batches)
    assert {(batch.num_rows, batch.length) for batch in batches} == {*plan.shapes}
    if not mix:
        assert sorted(np.concatenate(epoch_pairs(plan, 1))) == list(range(1000))
    assert plan.padding_waste() < 0.35


def test_summary_states_shapes_steps_and_waste():
    assert plan_of([6] * 20, batch_tokens=80).summary() == (
        "1 batch shapes (rows x length): 10x8\n"
        "2 steps an epoch, on average 60 source and 60 target tokens a batch\n"
        "padding: 25.0% of all positions"
    )


def test_a_batch_too_small_for_the_longest_pair_is_refused():
    with pytest.raises(UserError, match="at least 44, .* Received: batch_tokens=43"):
        plan_of([5, 41], batch_tokens=43)
    plan = plan_of([5, 41], batch_tokens=44)
    assert (plan.shapes, plan.steps_per_epoch) == ([(1, 44)], 2)


@pytest.mark.parametrize("num_replicas", [1, 2, 3, 4, 100])
@pytest.mark.parametrize("num_pairs", [0, 1, 5, 8])
def test_the_shares_of_a_batch_have_each_pair_once_and_one_shape(num_pairs, num_replicas):
    batch = Batch(np.arange(10, 10 + num_pairs), num_rows=8, length=12)
    shares = [batch.share(replica, num_replicas) for replica in range(num_replicas)]
    assert sorted(np.concatenate([share.indices for share in shares])) == batch.indices.tolist()
    (shape,) = {(share.num_rows, share.length) for share in shares}
    assert shape == (-(-8 // num_replicas), 12)
    sizes = [len(share.indices) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert max(sizes) <= shape[0]


# --- Mixed corpora -----------------------------------------------------------------------


@pytest.mark.parametrize("mix", ["1:4", "1:99", "99:1"])
def test_a_pair_is_drawn_as_often_as_the_others_of_its_corpus_and_length(mix):
    lengths = np.repeat([8, 16, 24], [300, 400, 300])
    mixture = Mixture([500, 500], mix, seed=3)
    for length in (8, 16, 24):
        pairs = np.flatnonzero(lengths == length)
        drawn = [mixture.draw(pairs, length, epoch) for epoch in range(150)]
        assert len({len(rows) for rows in drawn}) == 1
        counts = Counter(np.concatenate(drawn).tolist())
        for part in (pairs[pairs < 500], pairs[pairs >= 500]):
            times = {counts[pair] for pair in part}
            assert not part.size or (max(times) - min(times) <= 1 and max(times) > 0)


def test_summary_of_a_mix_says_how_often_a_pair_is_drawn():
    assert Mixture([100, 300], "1:1", 1).summary(["a", "b"]) == (
        "mix: a 50.0%, each pair 2 times an epoch; b 50.0%, each pair 0.667 times an epoch"
    )


@pytest.mark.parametrize("mix", ["1", "1:2:3", "a:b", "1:", "warmth=5", "temperature=1:2"])
def test_a_mix_that_does_not_fit_the_corpora_is_refused(mix):
    with pytest.raises(UserError, match="one for each of the 2 of `data.train`. Received: "):
        DataConfig(train=("a", "b"), mix=mix)


@pytest.mark.parametrize("mix", ["0:0", "1:0", "1:-1", "nan:1", "inf:1", "temperature=0"])
def test_weights_that_are_not_positive_are_refused(mix):
    with pytest.raises(UserError, match="must be above 0. Received: "):
        mix_weights(mix, [1, 1])


def test_a_temperature_near_zero_leaves_the_largest_corpus():
    assert mix_weights("temperature=0.001", [29_000, 10]) == [1.0, 0.0]
