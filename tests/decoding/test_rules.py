"""The rules for the next token, against those of the lists on hundreds of random tables."""

import dataclasses

import numpy as np
import pytest
import tensorflow as tf
from table_model import (
    Rules,
    all_hypotheses,
    assert_found,
    count_computed_rows,
    list_beam,
    random_tables,
    search,
)

from tf_transformer.config import PAD_ID
from tf_transformer.decoding.beam_search import Hypotheses


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
    }


def search_by(rules: list[Rules], tables: np.ndarray, **options) -> Hypotheses:
    """The search with one of the rules for each table."""
    return search(tables, [rule.limit for rule in rules], **options_of(rules), **options)


@pytest.mark.parametrize("no_repeat", [0, 1, 2, 3])
@pytest.mark.parametrize(
    ("vocabulary_size", "beam_size", "num_hypotheses"),
    [(8, 1, 1), (8, 4, 1), (9, 4, 4), (6, 3, 2)],
)
def test_search_finds_what_a_list_based_beam_finds_under_all_rules(
    vocabulary_size, beam_size, num_hypotheses, no_repeat
):
    count, seed = 96, 10 * beam_size + no_repeat
    tables = random_tables(count, vocabulary_size, seed)
    rules = random_rules(count, vocabulary_size, 8, no_repeat, seed)
    alphas = np.random.default_rng(seed).choice([0.0, 0.6, 2.0], count)
    sizes = {"beam_size": beam_size, "num_hypotheses": num_hypotheses}
    found = search_by(rules, tables, **sizes, alpha=alphas)
    for row, rule in enumerate(rules):
        assert_found(found, row, list_beam(tables[row], rule, beam_size, alphas[row]))


@pytest.mark.parametrize("no_repeat", [0, 1, 2])
def test_a_beam_wide_enough_finds_the_best_of_all_hypotheses_under_all_rules(no_repeat):
    tables = random_tables(96, 6, seed=no_repeat)
    rules = random_rules(96, 6, 4, no_repeat, seed=no_repeat)
    alphas = np.linspace(0.0, 2.0, 96)
    # Three tokens do not end a hypothesis, so 27 beams hold every history within the limit.
    found = search_by(rules, tables, beam_size=27, num_hypotheses=20, alpha=alphas)
    for row, rule in enumerate(rules):
        assert_found(found, row, all_hypotheses(tables[row], rule, alphas[row]))


@pytest.mark.parametrize("only", ["prefix", "min_lengths", "no_repeat_ngram"])
def test_each_rule_alone_equals_that_of_the_lists(only):
    tables = random_tables(96, 8, seed=4)
    options = options_of(random_rules(96, 8, 6, 2, seed=4))
    found = search(tables, [6] * 96, num_hypotheses=3, **{only: options[only]})
    prefixes = options["prefix"]
    for row in range(96):
        rule = {
            "prefix": Rules(6, prefix=tuple(prefixes[row][prefixes[row] > 0].tolist())),
            "min_lengths": Rules(6, min_length=options["min_lengths"][row]),
            "no_repeat_ngram": Rules(6, no_repeat=2),
        }[only]
        assert_found(found, row, list_beam(tables[row], rule, 4, 0.6))


def step_by_step(tokens, context):
    """A grammar whose context holds the allowed tokens of each step of a sentence."""
    return tf.tile(context[:, tf.newaxis, tf.shape(tokens)[-1]], [1, tokens.shape[1], 1])


@pytest.mark.parametrize("beam_size", [1, 3])
def test_a_grammar_applies_to_each_sentence_with_the_other_rules(beam_size):
    tables = random_tables(96, 8, seed=7)
    rules = random_rules(96, 8, 8, 2, seed=7)
    banned = np.random.default_rng(7).integers(0, 8, (96, 10))
    context = np.arange(8) != banned[..., np.newaxis]
    found = search_by(rules, tables, beam_size=beam_size, grammar=step_by_step, context=context)
    for row, rule in enumerate(rules):
        rule = dataclasses.replace(rule, banned=tuple(banned[row]))
        assert_found(found, row, list_beam(tables[row], rule, beam_size, 0.6)[:1])


def test_a_long_prefix_takes_no_more_steps_than_the_limit():
    computed = count_computed_rows(random_tables(2, 8), [5, 2], prefix=np.full((2, 30), 5))
    assert 5 <= computed <= 2 * 5


def test_rules_without_effect_change_nothing():
    tables, limits = random_tables(24, 8, seed=5), np.arange(24) % 12 + 1
    plain = search(tables, limits, num_hypotheses=4)
    rules = {"prefix": np.zeros((24, 0)), "min_lengths": [0] * 24, "no_repeat_ngram": 40}
    ruled = search(tables, limits, num_hypotheses=4, **rules)
    np.testing.assert_array_equal(ruled.tokens, plain.tokens)
    np.testing.assert_allclose(ruled.scores, plain.scores, rtol=1e-6)
