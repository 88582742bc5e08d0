"""One search for several length penalties finds what a search for each of them finds."""

import numpy as np
import pytest
from table_model import NUM_ROWS, count_computed_rows, random_tables, search
from trained import DECODING, assert_same

ALPHAS = (0.0, 0.3, 0.6, 1.0, 1.7, 3.0)


@pytest.mark.parametrize("beam_size", [1, 2, 5])
def test_the_best_under_each_alpha_is_that_of_a_separate_search(beam_size):
    tables = random_tables(96, 8, seed=beam_size)
    limits = [1 + row % 11 for row in range(len(tables))]
    together = search(tables, limits, beam_size=beam_size, alphas=ALPHAS)
    for column, alpha in enumerate(ALPHAS):
        alone = search(tables, limits, beam_size=beam_size, alpha=alpha)
        np.testing.assert_array_equal(together.tokens[:, column], alone.tokens[:, 0])
        np.testing.assert_array_equal(together.lengths[:, column], alone.lengths[:, 0])
        for name in ("log_probs", "scores"):
            found, expected = getattr(together, name)[:, column], getattr(alone, name)[:, 0]
            np.testing.assert_allclose(found, expected, rtol=1e-6)
    lengths = together.lengths
    assert beam_size == 1 or (lengths.max(axis=1) > lengths.min(axis=1)).any()


def test_it_takes_as_many_steps_as_the_alpha_that_searches_longest():
    for table in random_tables(12, 8, seed=7).reshape(12, 1, NUM_ROWS, 8):
        alone = [count_computed_rows(table, [20], alpha=alpha) for alpha in ALPHAS]
        assert count_computed_rows(table, [20], alphas=ALPHAS) == max(alone)


def test_translations_are_those_of_separate_searches(translator, texts):
    alphas = (0.0, 1.5)
    found = translator.engine.translate(texts, DECODING, alphas=alphas)
    for column, alpha in enumerate(alphas):
        expected = translator.translate(texts, alpha=alpha, n_best=1)
        assert_same([[hypotheses[column]] for hypotheses in found], expected)
