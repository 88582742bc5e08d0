"""The search in NumPy finds what the search in the graph finds."""

import numpy as np
import pytest
import tensorflow as tf
from table_model import (
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
from tf_transformer.decoding.host_search import HostRules, _best_of_many, host_search


class TableStep:
    """`table_step` in NumPy."""

    def __init__(self, tables: np.ndarray) -> None:
        self.tables, self.read, self.sizes = tables, [], []

    def __call__(self, tokens, index, ancestry):
        self.read.append(tokens)
        self.sizes.append(len(tokens))
        assert (
            index == len(self.read) - 1
            and (ancestry[:, :, -1] == [*range(tokens.shape[1])]).all()
        )
        read = np.stack(self.read, axis=-1)  # [B, W, t]
        histories = np.take_along_axis(read, ancestry, axis=1)
        rows = (histories * WEIGHTS[: index + 1]).sum(-1) % NUM_ROWS
        return np.take_along_axis(self.tables, rows[..., np.newaxis], axis=1)

    def keep(self, rows):
        self.tables = self.tables[rows]
        self.read = [tokens[rows] for tokens in self.read]


PREFIXES = [[4], [], [5, 4, 4], [4, 5]]


@pytest.mark.parametrize(
    ("vocabulary_size", "beam_size", "num_hypotheses", "alpha", "rules"),
    [
        (8, 1, 1, 0.6, {}),
        (8, 4, 1, 0.0, {}),
        (8, 4, 4, 0.6, {}),
        (4, 2, 2, 0.6, {}),
        (700, 4, 3, 0.6, {}),  # so many that only the best are sorted
        (8, 4, 2, 1.0, {"min_length": 5}),
        (8, 4, 2, 0.6, {"no_repeat_ngram": 2}),
        (700, 4, 1, 0.6, {"no_repeat_ngram": 1}),
        (8, 4, 4, 0.6, {"prefix": PREFIXES}),
        (8, 3, 2, 0.6, {"prefix": PREFIXES, "min_length": 4, "no_repeat_ngram": 3}),
    ],
)
def test_it_finds_what_lists_and_the_graph_find(
    vocabulary_size, beam_size, num_hypotheses, alpha, rules
):
    count = 12 if vocabulary_size > 100 else 64
    tables = random_tables(count, vocabulary_size, seed=beam_size)
    limits = [1 + row % 9 for row in range(count)]
    sizes = {"beam_size": beam_size, "num_hypotheses": num_hypotheses, "alpha": alpha}
    prefixes = [
        rules.get("prefix", [[]])[row % len(rules.get("prefix", [[]]))] for row in range(count)
    ]
    padded = np.array([prefix + [0] * (3 - len(prefix)) for prefix in prefixes], np.int32)
    given = rules | ({"prefix": padded} if "prefix" in rules else {})
    step = TableStep(tables)
    found = host_search(step, HostRules(np.array(limits, np.int32), **given), **sizes)
    for row, limit in enumerate(limits):
        rule = Rules(
            limit,
            rules.get("min_length", 1),
            tuple(prefixes[row]),
            rules.get("no_repeat_ngram", 0),
        )
        assert_found(found, row, list_beam(tables[row], rule, beam_size, alpha))

    options = dict(given)
    if "min_length" in options:
        options["min_lengths"] = [options.pop("min_length")] * count
    for ours, graphs in zip(found, search(tables, limits, **sizes, **options), strict=True):
        assert ours.dtype == graphs.dtype and ours.shape == graphs.shape
        np.testing.assert_allclose(ours, graphs, rtol=1e-5, atol=1e-5)
    assert step.sizes[0] == count and step.sizes[-1] < count  # finished sentences leave


@pytest.mark.parametrize(("lookahead", "steps"), [(8, 1), (9, 10)])
def test_a_lookahead_stops_it_where_it_stops_the_graph(lookahead, steps):
    rules = {(): {EOS_ID: 0.30, 4: 0.13}, (4,) * 9: {EOS_ID: 0.999}}
    rules |= {(4,) * length: {4: 0.999} for length in range(1, 9)}
    step, limits = TableStep(table_of(rules)), HostRules(np.array([10], np.int32))
    options = {"num_hypotheses": 1, "alpha": 0.6, "lookahead": lookahead}
    found = host_search(step, limits, beam_size=2, **options)
    expected = search(table_of(rules), [10], beam_size=2, **options)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    assert len(step.sizes) == steps


def test_a_lookahead_stops_a_sentence_whatever_others_its_batch_has():
    endless = {(4,) * length: {4: 0.999} for length in range(10)}
    stops = endless | {(): {EOS_ID: 0.30, 4: 0.13}, (4,) * 9: {EOS_ID: 0.999}}
    tables = np.concatenate([table_of(stops), *[table_of(endless)] * 8])
    rules = HostRules(np.full([9], 10, np.int32))
    options = {"num_hypotheses": 1, "alpha": 0.6, "lookahead": 8}
    found = host_search(TableStep(tables), rules, beam_size=2, **options)
    assert found.tokens[0, 0, 0] == EOS_ID


def test_no_sentence_gives_no_hypothesis():
    rules = HostRules(np.zeros([0], np.int32))
    step = TableStep(random_tables(0, 8))
    found = host_search(step, rules, beam_size=2, num_hypotheses=2, alpha=0.6)
    assert [column.shape for column in found] == [(0, 2, 0), (0, 2), (0, 2), (0, 2)]


@pytest.mark.parametrize("size", [11, 352, 353, 1000])
def test_the_best_of_many_are_those_of_top_k_with_all_ties(size):
    rng = np.random.default_rng(size)
    values = rng.integers(0, 9, [20, size]).astype(np.float32)
    values[rng.random(values.shape) < 0.7] = -np.inf
    values[0] = -np.inf
    for ours, graphs in zip(_best_of_many(values, 11), tf.math.top_k(values, 11), strict=True):
        assert ours.tolist() == graphs.numpy().tolist()
