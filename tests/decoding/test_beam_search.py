"""The search, its rules and alphas against a list-based beam and all hypotheses."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from table_model import (
    EARLY_OR_LATE,
    ENDLESS,
    NO_SCORE,
    NUM_ROWS,
    SLOT_IDS,
    A,
    Rules,
    assert_found,
    count_computed_rows,
    hypotheses_of,
    list_beam,
    random_tables,
    search,
    table_of,
    table_step,
)

from tf_transformer.config import EOS_ID, PAD_ID, UNK_ID
from tf_transformer.decoding.beam_search import beam_search
from tf_transformer.decoding.hypotheses import Hypotheses

B = 5  # an ordinary token, like A


@pytest.mark.parametrize(
    ("vocabulary_size", "beam_size", "num_hypotheses", "alpha"),
    [(8, 1, 1, 0.6), (8, 4, 4, 0.0), (8, 5, 3, 1.0), (5, 12, 7, 0.6)],
)
def test_search_finds_what_a_list_based_beam_finds(
    vocabulary_size, beam_size, num_hypotheses, alpha
):
    tables = random_tables(96, vocabulary_size, seed=beam_size)
    limits = [1 + row % 9 for row in range(len(tables))]
    sizes = {"beam_size": beam_size, "num_hypotheses": num_hypotheses}
    found = search(tables, limits, alpha=alpha, **sizes)
    for row, limit in enumerate(limits):
        assert_found(found, row, list_beam(tables[row], Rules(limit), beam_size, alpha))


@pytest.mark.parametrize(
    ("probability", "limit"),
    # 0.13 wins only at the limit: log(0.13) / penalty(10) > log(0.30), but not / penalty(9).
    [(0.29, 20), (0.13, 10)],
)
def test_search_continues_while_a_longer_hypothesis_can_still_win(probability, limit):
    rules = EARLY_OR_LATE | {(): {EOS_ID: 0.30, A: probability}}
    found = search(table_of(rules), [limit], beam_size=2)
    assert hypotheses_of(found, 0) == [(A,) * 9 + (EOS_ID,)]
    np.testing.assert_allclose(found.log_probs[0, 0], np.log(probability * 0.999**9), rtol=1e-5)


@pytest.mark.parametrize(
    ("lookahead", "best", "steps"), [(8, (EOS_ID,), 1), (9, (A,) * 9 + (EOS_ID,), 10)]
)
def test_search_with_a_lookahead_stops_if_nothing_better_can_end_that_soon(
    lookahead, best, steps
):
    table, options = table_of(EARLY_OR_LATE), {"beam_size": 2, "lookahead": lookahead}
    assert hypotheses_of(search(table, [10], **options), 0) == [best]
    assert count_computed_rows(table, [10], **options) == steps


def test_a_lookahead_stops_a_sentence_whatever_else_is_in_its_batch():
    tables = np.concatenate([table_of(EARLY_OR_LATE), *[table_of(ENDLESS)] * 8])
    found = search(tables, [10] * 9, beam_size=2, lookahead=8)
    assert hypotheses_of(found, 0)[0] == (EOS_ID,)


@pytest.mark.parametrize(("limit", "steps"), [(8, 2), (9, 3)])
def test_the_example_in_the_modules_docstring_is_correct(limit, steps):
    C = UNK_ID
    rules = {
        (): {A: 0.6065, B: 0.3679},
        (A,): {EOS_ID: 0.6, A: 0.1, B: 0.2, C: 0.1},
        (B,): {EOS_ID: 0.1, A: 0.6, B: 0.1, C: 0.2},
    }
    found = search(table_of(rules), [limit], beam_size=2)
    assert hypotheses_of(found, 0) == [(A, EOS_ID)]
    assert found.log_probs[0, 0] == pytest.approx(-1.01, abs=0.005)
    assert found.scores[0, 0] == pytest.approx(-0.92, abs=0.005)
    assert count_computed_rows(table_of(rules), [limit], beam_size=2) == steps


@pytest.mark.parametrize(
    ("num_hypotheses", "alpha", "steps"), [(1, 0.6, 1), (2, 0.6, 3), (3, 0.6, 5), (3, 0.0, 3)]
)
def test_search_stops_as_soon_as_no_beam_can_enter_the_n_best(num_hypotheses, alpha, steps):
    # The n-th best is A^(n-1) EOS with log(0.9 * 0.1^(n-1)) / penalty(n); after t steps
    # the best beam is A^t, bounded by log(0.1^t) / penalty(30), and penalty(30) is 2.88.
    rules = {(A,) * length: {EOS_ID: 0.9, A: 0.1} for length in range(8)}
    sizes = {"beam_size": 3, "num_hypotheses": num_hypotheses}
    assert count_computed_rows(table_of(rules), [30], **sizes, own_alphas=[alpha]) == steps


def test_the_limit_of_another_sentence_does_not_delay_the_stop():
    rules = {(A,) * length: {EOS_ID: 0.9, A: 0.1} for length in range(8)}
    tables = np.repeat(table_of(rules), 2, axis=0)
    # After two steps log(0.1^2) / penalty(3) loses, but not log(0.1^2) / penalty(30).
    assert count_computed_rows(tables, [3, 30], beam_size=3, num_hypotheses=2) == 2 + 3


def test_every_hypothesis_ends_with_eos_within_the_limit_of_its_sentence():
    tables, limits = random_tables(40, 8), np.arange(40) % 8 + 4
    tables[:, :, EOS_ID] = -1000.0  # nothing ends unless forced
    found = search(tables, limits, num_hypotheses=4)
    np.testing.assert_array_equal(found.lengths, np.repeat(limits[:, np.newaxis], 4, axis=1))
    np.testing.assert_array_equal((found.tokens == EOS_ID).sum(axis=-1), 1)
    last = np.take_along_axis(found.tokens, found.lengths[..., np.newaxis] - 1, axis=-1)
    np.testing.assert_array_equal(last, EOS_ID)
    assert found.tokens.shape[-1] == limits.max()


@pytest.mark.parametrize(("limit", "existing"), [(1, 1), (2, 3), (3, 7), (4, 8)])
def test_only_hypotheses_that_do_not_exist_are_replaced_by_finite_fillers(limit, existing):
    tables = random_tables(16, 5)  # two tokens do not end: 1 + 2 + 4 hypotheses up to length 3
    found = search(tables, [limit] * 16, beam_size=8, num_hypotheses=8)
    for row in range(16):
        hypotheses = hypotheses_of(found, row)
        assert len(set(hypotheses) - {()}) == existing
        assert hypotheses[existing:] == [()] * (8 - existing)
    for figures in (found.scores, found.log_probs):
        np.testing.assert_array_equal(figures[:, existing:], NO_SCORE)


def test_equal_scores_are_ranked_by_beam_and_then_by_token():
    flat = np.zeros([1, NUM_ROWS, 6], np.float32)
    found = search(flat, [2], beam_size=2, num_hypotheses=2, alpha=0.0)
    # Of the tokens UNK, EOS, A, B the first two that do not end are UNK and A.
    assert found.tokens[0].tolist() == [[EOS_ID, PAD_ID], [UNK_ID, EOS_ID]]


def test_finished_sentences_leave_the_batch():
    tables = random_tables(8, 8)
    tables[:, :, EOS_ID] = -1000.0
    limits = [1, 1, 1, 1, 1, 1, 20, 20]
    assert count_computed_rows(tables, limits) == 8 * 1 + 2 * 19


def test_a_batch_of_static_size_shrinks_like_any_other():
    tables, limits = random_tables(6, 8, seed=5), [1, 1, 1, 2, 5, 9]
    cache = {"read": tf.zeros([6, 0, 4], tf.int32), "tables": tf.constant(tables)}
    static = tf.function(
        lambda: beam_search(table_step, cache, tf.constant(limits), beam_size=4)
    )()
    np.testing.assert_array_equal(static.tokens, search(tables, limits).tokens)


@pytest.mark.parametrize("options", [{}, {"lookahead": 3}, {"alphas": (0.0, 1.0)}])
def test_batches_of_few_sizes_give_the_same_hypotheses(options):
    tables, limits = random_tables(7, 8, seed=3), [2, 9, 4, 14, 1, 9, 6]
    few = search(tables, limits, few_sizes=True, **options)
    for found, expected in zip(few, search(tables, limits, **options), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    ("limits", "rows"), [([1, 3, 9, 1, 3, 9, 1], 8 + 2 * 4 + 6 * 2), ([1] * 2 + [9] * 5, 9 * 8)]
)
def test_such_a_batch_has_a_power_of_two_of_sentences(limits, rows):
    tables = random_tables(7, 8)
    tables[:, :, EOS_ID] = -1000.0
    assert count_computed_rows(tables, limits, few_sizes=True) == rows


def test_an_empty_batch_gives_no_hypotheses():
    found = search(np.zeros([0, NUM_ROWS, 8], np.float32), [], num_hypotheses=2, few_sizes=True)
    assert found.tokens.shape == (0, 2, 0)
    assert found.scores.shape == (0, 2)


ALPHAS = (0.0, 0.3, 0.6, 1.0, 1.7, 3.0)


@pytest.mark.parametrize("beam_size", [1, 5])
def test_the_best_under_each_alpha_is_that_of_a_separate_search(beam_size):
    tables = random_tables(96, 8, seed=beam_size)
    limits = [1 + row % 11 for row in range(len(tables))]
    together = search(tables, limits, beam_size=beam_size, alphas=ALPHAS)
    for column, alpha in enumerate(ALPHAS):
        alone = search(tables, limits, beam_size=beam_size, own_alphas=[alpha] * len(tables))
        np.testing.assert_array_equal(together.tokens[:, column], alone.tokens[:, 0])
        np.testing.assert_array_equal(together.lengths[:, column], alone.lengths[:, 0])
        for name in ("log_probs", "scores"):
            found, expected = getattr(together, name)[:, column], getattr(alone, name)[:, 0]
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    lengths = together.lengths
    assert beam_size == 1 or (lengths.max(axis=1) > lengths.min(axis=1)).any()


def test_it_takes_as_many_steps_as_the_alpha_that_searches_longest():
    for table in random_tables(12, 8, seed=7).reshape(12, 1, NUM_ROWS, 8):
        alone = [count_computed_rows(table, [20], own_alphas=[alpha]) for alpha in ALPHAS]
        assert count_computed_rows(table, [20], alphas=ALPHAS) == max(alone)


def random_rules(count: int, vocabulary_size: int, longest: int, no_repeat: int, seed: int):
    """Rules of each kind, alone and together, some of which contradict each other."""
    rng = np.random.default_rng(seed)
    ordinary = [token for token in range(vocabulary_size) if token not in (0, 2, 3)]
    return [
        Rules(
            limit=int(rng.integers(1, longest + 1)),
            min_length=int(rng.integers(0, longest + 2)),
            prefix=tuple(rng.choice(ordinary, rng.integers(0, longest)).tolist()),
            no_repeat=no_repeat,
        )
        for _ in range(count)
    ]


def options_of(rules: list[Rules]) -> dict:
    """The rules as options of the search."""
    width = max(len(rule.prefix) for rule in rules)
    padded = [rule.prefix + (PAD_ID,) * (width - len(rule.prefix)) for rule in rules]
    return {
        "prefix": np.reshape(padded, (len(rules), width)),
        "min_lengths": [rule.min_length for rule in rules],
        "no_repeat_ngram": rules[0].no_repeat,
    } | ({"slots": np.array([rule.slots for rule in rules])} if rules[0].slots else {})


def search_by(rules: list[Rules], tables: np.ndarray, **options) -> Hypotheses:
    """The search with one of the rules for each table."""
    return search(tables, [rule.limit for rule in rules], **options_of(rules), **options)


@pytest.mark.parametrize(
    ("vocabulary_size", "beam_size", "num_hypotheses", "no_repeat", "with_slots"),
    [
        (8, 1, 1, 2, False), (8, 4, 1, 0, False), (9, 4, 4, 1, False), (6, 3, 2, 3, False),
        (9, 4, 4, 2, True), (10, 1, 1, 0, True),
    ],
)  # fmt: skip
def test_search_finds_what_a_list_based_beam_finds_under_all_rules(
    vocabulary_size, beam_size, num_hypotheses, no_repeat, with_slots
):
    count, seed = 95, 10 * beam_size + no_repeat
    tables = random_tables(count, vocabulary_size, seed)
    rules = random_rules(count, vocabulary_size, 8, no_repeat, seed)
    if with_slots:
        slots = np.random.default_rng(seed).integers(0, 3, [count, 2]).tolist()
        rules = [
            dataclasses.replace(rule, slots=tuple(some))
            for rule, some in zip(rules, slots, strict=True)
        ]
    alphas = np.random.default_rng(seed).choice([0.0, 0.6, 2.0], count)
    sizes = {"beam_size": beam_size, "num_hypotheses": num_hypotheses}
    found = search_by(rules, tables, **sizes, own_alphas=alphas, few_sizes=with_slots)
    for row, rule in enumerate(rules):
        assert_found(found, row, list_beam(tables[row], rule, beam_size, alphas[row]))


@pytest.mark.parametrize("beam_size", [1, 4])
def test_each_slot_of_the_source_comes_once_before_the_end_and_no_other(beam_size):
    tables = random_tables(200, 9)
    wanted = np.random.default_rng(0).integers(0, 2, [200, 2])
    limits = [int(number) + 1 + row % 5 for row, number in enumerate(wanted.sum(axis=1))]
    found = search(tables, limits, beam_size=beam_size, slots=wanted)
    for row, limit in enumerate(limits):
        (tokens,) = hypotheses_of(found, row)
        assert tokens[-1] == EOS_ID and len(tokens) <= limit
        counts = [sum(map(tokens.count, forms)) for forms in SLOT_IDS.tolist()]
        assert counts == wanted[row].tolist()


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_users_rule_applies_to_each_sentence_with_the_other_rules(beam_size):
    tables = random_tables(96, 8, seed=7)
    rules = random_rules(96, 8, 8, 2, seed=7)
    banned = np.random.default_rng(7).integers(0, 8, (96, 10))
    steps = np.arange(8) != banned[..., np.newaxis]
    found = search_by(rules, tables, beam_size=beam_size, steps=steps)
    for row, rule in enumerate(rules):
        rule = dataclasses.replace(rule, banned=tuple(banned[row]))
        assert_found(found, row, list_beam(tables[row], rule, beam_size, 0.6)[:1])


def test_a_long_prefix_takes_no_more_steps_than_the_limit():
    computed = count_computed_rows(random_tables(2, 8), [5, 2], prefix=np.full((2, 30), 5))
    assert 5 <= computed <= 2 * 5
