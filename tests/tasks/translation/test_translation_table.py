"""IBM Model 1: a planted dictionary, and two pairs worked out by hand."""

import numpy as np
import pytest
from given_pairs import GivenPairs

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.tasks.translation import translation_table
from tf_transformer.tasks.translation.translation_table import (
    Pairs,
    model1,
    most_probable,
    target_counts,
)

VOCAB_SIZE = 100


def planted(number: int) -> Pairs:
    """Pairs in which token i becomes i + 40, in any order, and targets may also contain 5."""
    rng = np.random.default_rng(0)
    pairs = []
    for _ in range(number):
        source = rng.integers(10, 40, rng.integers(1, 12))
        target = [*(source + 40), *[5] * rng.integers(0, 3)]
        pairs.append((source.tolist(), rng.permutation(target).tolist()))
    return Pairs(GivenPairs(pairs), np.arange(number))


@pytest.mark.parametrize("chunk_links", [1, 500, 2**22])
def test_a_planted_dictionary_is_learned_whatever_the_chunks(monkeypatch, chunk_links):
    monkeypatch.setattr(translation_table, "CHUNK_LINKS", chunk_links)
    links = model1(planted(300), VOCAB_SIZE)
    table = most_probable(links, VOCAB_SIZE, 2)
    assert table[10:40, 0].tolist() == list(range(50, 80))
    assert table[EOS_ID, 0] == 5  # the empty word explains what no source token does
    assert np.all(table[[*range(3), *range(4, 10), *range(40, VOCAB_SIZE)]] == PAD_ID)
    sums = np.bincount(links.sources, links.probabilities)
    np.testing.assert_allclose(sums[sums > 0], 1.0)


def test_the_first_iteration_shares_each_target_token_evenly(monkeypatch):
    """The pairs are (a b, x) and (a, x y); in the first, x may come from a, b or no word."""
    a, b, x, y = 10, 11, 12, 13
    monkeypatch.setattr(translation_table, "ITERATIONS", 1)
    pairs = GivenPairs([([a, b], [x]), ([a], [x, y])])
    columns = (each.tolist() for each in model1(Pairs(pairs, np.arange(2)), VOCAB_SIZE))
    table = {(source, target): p for source, target, p in zip(*columns, strict=True)}
    of_x, of_y = 1 / 3 + 1 / 2, 1 / 2
    expected = {
        (a, x): of_x / (of_x + of_y),
        (a, y): of_y / (of_x + of_y),
        (b, x): 1.0,
        (EOS_ID, x): of_x / (of_x + of_y),
        (EOS_ID, y): of_y / (of_x + of_y),
    }
    assert table == pytest.approx(expected)


def test_only_the_given_pairs_count():
    corpus = GivenPairs([([10], [50, 51]), ([11, 12], [51]), ([13], [52])])
    pairs = Pairs(corpus, np.array([0, 1]))
    assert pairs.num_links == 2 * 2 + 3 * 1
    assert target_counts(pairs, VOCAB_SIZE)[[50, 51, 52]].tolist() == [1, 2, 0]
    links = model1(pairs, VOCAB_SIZE)
    assert set(links.targets.tolist()) == {50, 51}
    table = most_probable(links, VOCAB_SIZE, 3)
    assert table[10].tolist() == [50, 51, PAD_ID]
    assert table[13].tolist() == [PAD_ID] * 3


def test_progress_counts_the_pairs_of_each_pass():
    seen = []
    model1(planted(7), VOCAB_SIZE, lambda text, done: seen.append((text, done)))
    assert seen[0] == ("collecting links", 7)
    assert seen[-1] == ("iteration 5 of 5", 7)
