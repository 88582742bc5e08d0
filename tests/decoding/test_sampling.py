"""Samples against the exact distribution of all hypotheses, and what they depend on."""

import itertools
from collections import Counter

import numpy as np
import pytest
from table_model import Rules, extensions, hypotheses_of, random_tables, run_search

from tf_transformer.config import EOS_ID
from tf_transformer.decoding.sampling import sample

COPIES, SAMPLES = 400, 32  # rows with one table, and samples of each row


def draw(tables, limits, seed=1, **options):
    seeds = np.arange(len(tables)) * 1_000 + seed
    return run_search(
        tables, limits, sample, {"num_samples": SAMPLES, "seeds": seeds} | options
    )[0]


def step_distribution(pairs: list, temperature=1.0, top_k=0, top_p=1.0) -> list[tuple]:
    """(tokens, probability) of the tokens to draw from, by their (tokens, log-probability)."""
    pairs = sorted(pairs, key=lambda pair: -pair[1])[: top_k or None]
    weights = np.exp([log_prob / temperature for _, log_prob in pairs])
    weights /= weights.sum()
    sums = itertools.accumulate(weights)
    kept = 1 + sum(total < top_p for total in list(sums)[:-1])
    return [
        (tokens, weight / weights[:kept].sum())
        for (tokens, _), weight in zip(pairs[:kept], weights, strict=False)
    ]


def exact_distribution(table, rules: Rules, **settings) -> dict[tuple, float]:
    """The probability of every hypothesis that can be drawn."""
    pending, found = [((), 1.0)], {}
    while pending:
        tokens, probability = pending.pop()
        following = list(extensions(table, tokens, 0.0, rules))
        for longer, share in step_distribution(following, **settings):
            if longer[-1] == EOS_ID:
                found[longer] = probability * share
            else:
                pending.append((longer, probability * share))
    assert sum(found.values()) == pytest.approx(1.0)
    return found


def assert_drawn_from(counts: Counter, expected: dict[tuple, float]) -> None:
    """Pearson's chi-square: its mean is the degrees of freedom, its variance twice that.

    Hypotheses that are expected less than ten times are counted together.
    """
    assert set(counts) <= set(expected)
    total = counts.total()
    common = [tokens for tokens in expected if expected[tokens] * total >= 10]
    wanted = np.array([expected[tokens] * total for tokens in common])
    seen = np.array([counts[tokens] for tokens in common])
    wanted, seen = np.append(wanted, total - wanted.sum()), np.append(seen, total - seen.sum())
    if wanted[-1] < 10:
        wanted, seen = wanted[:-1], seen[:-1]
    freedom = len(common) - 1
    if freedom:
        chi_square = ((seen - wanted) ** 2 / wanted).sum()
        assert chi_square < freedom + 4.5 * np.sqrt(2 * freedom), (chi_square, freedom)


@pytest.mark.parametrize(
    ("settings", "rules"),
    [
        ({}, {}),
        ({"temperature": 1.5, "top_k": 3, "top_p": 0.8}, {}),
        ({"temperature": 0.5, "top_k": 50}, {"prefix": (5, 4), "min_length": 4}),
        ({"top_k": 2}, {"min_length": 3, "no_repeat": 1}),
        ({"top_p": 0.6}, {"no_repeat": 2}),
    ],
    ids=str,
)
def test_samples_have_the_exact_distribution(settings, rules):
    rules = Rules(4, **rules)
    options = {"min_lengths": [rules.min_length] * COPIES} if rules.min_length > 1 else {}
    if rules.prefix:
        options["prefix"] = np.repeat([rules.prefix], COPIES, axis=0)
    for table in random_tables(6, 7, seed=11):
        tables = np.repeat(table[np.newaxis], COPIES, axis=0)
        given = settings | options | {"no_repeat_ngram": rules.no_repeat}
        found = draw(tables, [4] * COPIES, **given)
        counts = Counter(
            tokens for row in range(COPIES) for tokens in hypotheses_of(found, row)
        )
        assert_drawn_from(counts, exact_distribution(table, rules, **settings))


def test_tokens_that_may_not_be_drawn_have_no_share():
    table = random_tables(1, 7, seed=4)
    drawable = (True,) * 5 + (False, True)
    found = draw(np.repeat(table, COPIES, axis=0), [3] * COPIES, drawable=drawable)
    without = table[0].copy()
    without[:, 5] = -np.inf
    counts = Counter(tokens for row in range(COPIES) for tokens in hypotheses_of(found, row))
    assert_drawn_from(counts, exact_distribution(without, Rules(3)))


def test_samples_of_one_sentence_are_independent():
    table = random_tables(1, 7, seed=3)
    found = draw(np.repeat(table, 6000, axis=0), [3] * 6000, num_samples=2)
    equal = sum(len(set(hypotheses_of(found, row))) == 1 for row in range(6000))
    chance = sum(p**2 for p in exact_distribution(table[0], Rules(3)).values())
    assert abs(equal - 6000 * chance) < 4.5 * np.sqrt(6000 * chance * (1 - chance))


def test_the_same_seed_draws_the_same_samples_and_another_seed_others():
    tables = random_tables(20, 8)
    one, again = draw(tables, [9] * 20), draw(tables, [9] * 20)
    np.testing.assert_array_equal(one.tokens, again.tokens)
    other = draw(tables, [9] * 20, seed=2)
    assert np.any(one.tokens != other.tokens, axis=(1, 2)).all()


def test_samples_of_a_sentence_depend_on_its_own_seed_only():
    tables, limits = random_tables(24, 8, seed=5), np.arange(24) % 12 + 1
    seeds = np.arange(24) * 1000 - 5000
    together = draw(tables, limits, seeds=seeds)
    order = np.random.default_rng(0).permutation(24)
    permuted = draw(tables[order], limits[order], seeds=seeds[order])
    np.testing.assert_array_equal(permuted.tokens, together.tokens[order])
    for row, limit in enumerate(limits):  # alone it is never compacted
        alone = draw(tables[row : row + 1], [limit], seeds=seeds[row : row + 1])
        np.testing.assert_array_equal(alone.tokens[0], together.tokens[row, :, :limit])


def test_log_probabilities_are_those_of_the_model_and_order_the_samples():
    tables = random_tables(20, 8)
    found = draw(tables, [9] * 20, temperature=2.0, top_k=4, min_lengths=[3] * 20)
    np.testing.assert_array_equal(found.scores, found.log_probs)
    assert np.all(np.diff(found.log_probs, axis=1) <= 0)
    for row, table in enumerate(tables):
        for tokens, log_prob in zip(
            hypotheses_of(found, row), found.log_probs[row], strict=True
        ):
            total = 0.0
            for length in range(len(tokens)):
                following = extensions(table, tokens[:length], total, Rules(9))
                total = dict(following)[tokens[: length + 1]]
            assert log_prob == pytest.approx(total, abs=1e-4)


def test_top_k_draws_only_the_best_of_a_large_vocabulary():
    logits = np.random.default_rng(0).normal(size=(1, 97, 4000)).astype(np.float32)
    found = draw(np.repeat(logits, 50, axis=0), [2] * 50, top_k=5)
    best = np.argsort(-logits[0, 2, 4:])[:5] + 4  # row 2 is that of BOS alone
    assert set(found.tokens[:, :, 0].ravel().tolist()) == set(best.tolist())
