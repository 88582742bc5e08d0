"""The search in NumPy finds what the search in the graph finds."""

import numpy as np
import pytest
import tensorflow as tf
from table_model import (
    EARLY_OR_LATE,
    ENDLESS,
    NUM_ROWS,
    WEIGHTS,
    Rules,
    assert_found,
    list_beam,
    random_tables,
    search,
    table_of,
)

from tf_transformer.config import EOS_ID
from tf_transformer.decoding.lite import HostRules, _best_of_many, host_search


class TableStep:
    """`table_step` in NumPy."""

    def __init__(self, tables: np.ndarray) -> None:
        self.tables, self.read, self.sizes = tables, [], []

    def __call__(self, tokens, index, ancestry):
        self.read.append(tokens)
        self.sizes.append(len(tokens))
        assert index == len(self.read) - 1
        assert (ancestry[:, :, -1] == range(tokens.shape[1])).all()
        read = np.stack(self.read, axis=-1)  # [B, W, t]
        histories = np.take_along_axis(read, ancestry, axis=1)
        rows = (histories * WEIGHTS[: index + 1]).sum(-1) % NUM_ROWS
        return np.take_along_axis(self.tables, rows[..., np.newaxis], axis=1)

    def keep(self, rows):
        self.tables = self.tables[rows]
        self.read = [tokens[rows] for tokens in self.read]


PREFIXES = [[4, 0, 0], [0, 0, 0], [5, 4, 4], [4, 5, 0]]


@pytest.mark.parametrize(
    ("vocabulary_size", "beam_size", "num_hypotheses", "alpha", "rules"),
    [
        (8, 1, 1, 0.6, {}),
        (8, 4, 1, 0.0, {}),
        (8, 4, 4, 0.6, {}),
        (4, 2, 2, 0.6, {}),
        (700, 4, 3, 0.6, {}),  # large enough for only the best to be sorted
        (8, 4, 2, 1.0, {"min_length": 5}),
        (8, 4, 2, 0.6, {"no_repeat_ngram": 2}),
        (700, 4, 1, 0.6, {"no_repeat_ngram": 1}),
        (8, 4, 4, 0.6, {"prefix": PREFIXES}),
        (8, 3, 2, 0.6, {"prefix": PREFIXES, "min_length": 4, "no_repeat_ngram": 3}),
    ],
)
def test_it_finds_what_the_lists_and_the_graph_find(
    vocabulary_size, beam_size, num_hypotheses, alpha, rules
):
    count = 12 if vocabulary_size > 100 else 64
    tables = random_tables(count, vocabulary_size, seed=beam_size)
    limits = [1 + row % 9 for row in range(count)]
    sizes = {"beam_size": beam_size, "num_hypotheses": num_hypotheses, "alpha": alpha}
    if "prefix" in rules:
        rules = rules | {"prefix": np.resize(rules["prefix"], [count, 3]).astype(np.int32)}
    step = TableStep(tables)
    found = host_search(step, HostRules(np.array(limits, np.int32), **rules), **sizes)
    for row, limit in enumerate(limits):
        prefix = [token for token in rules["prefix"][row] if token] if "prefix" in rules else []
        rule = Rules(
            limit, rules.get("min_length", 1), tuple(prefix), rules.get("no_repeat_ngram", 0)
        )
        assert_found(found, row, list_beam(tables[row], rule, beam_size, alpha))

    if "min_length" in rules:
        rules = rules | {"min_lengths": [rules["min_length"]] * count}
        del rules["min_length"]
    for ours, graphs in zip(found, search(tables, limits, **sizes, **rules), strict=True):
        assert ours.dtype == graphs.dtype and ours.shape == graphs.shape
        np.testing.assert_allclose(ours, graphs, rtol=1e-5, atol=1e-5)
    assert step.sizes[0] == count and step.sizes[-1] < count  # finished sentences leave


@pytest.mark.parametrize(("lookahead", "steps"), [(8, 1), (9, 10)])
def test_a_lookahead_stops_it_where_it_stops_the_graph(lookahead, steps):
    table, limits = table_of(EARLY_OR_LATE), HostRules(np.array([10], np.int32))
    step = TableStep(table)
    options = {"num_hypotheses": 1, "alpha": 0.6, "lookahead": lookahead}
    found = host_search(step, limits, beam_size=2, **options)
    expected = search(table, [10], beam_size=2, **options)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    assert len(step.sizes) == steps


def test_a_lookahead_stops_a_sentence_whatever_else_is_in_its_batch():
    tables = np.concatenate([table_of(EARLY_OR_LATE), *[table_of(ENDLESS)] * 8])
    rules = HostRules(np.full([9], 10, np.int32))
    options = {"num_hypotheses": 1, "alpha": 0.6, "lookahead": 8}
    found = host_search(TableStep(tables), rules, beam_size=2, **options)
    assert found.tokens[0, 0, 0] == EOS_ID


def test_an_empty_batch_gives_no_hypotheses():
    rules = HostRules(np.zeros([0], np.int32))
    step = TableStep(random_tables(0, 8))
    found = host_search(step, rules, beam_size=2, num_hypotheses=2, alpha=0.6)
    assert [column.shape for column in found] == [(0, 2, 0), (0, 2), (0, 2), (0, 2)]


@pytest.mark.parametrize("size", [11, 352, 353, 1000])
def test_the_best_of_many_equal_top_k_ties_included(size):
    rng = np.random.default_rng(size)
    values = rng.integers(0, 9, [20, size]).astype(np.float32)
    values[rng.random(values.shape) < 0.7] = -np.inf
    values[0] = -np.inf
    for ours, graphs in zip(_best_of_many(values, 11), tf.math.top_k(values, 11), strict=True):
        assert ours.tolist() == graphs.numpy().tolist()
