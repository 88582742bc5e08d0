"""One pass over a corpus: its sample, counts, hashes and locations."""

from collections import Counter

import numpy as np
import pytest

from tf_transformer.data import builtin
from tf_transformer.doctor.survey import Hashes, take_survey
from tf_transformer.errors import UserError

PAIRS = builtin.pairs(500)


def test_a_small_corpus_is_kept_whole_and_in_order(survey):
    taken = survey(PAIRS)
    assert [(pair.source, pair.target) for pair in taken.sample] == PAIRS
    assert [pair.number for pair in taken.sample] == list(range(500))
    assert taken.pairs == 500


def test_a_large_corpus_is_sampled_evenly(survey):
    taken = survey([(f"line {number}", "x") for number in range(20_000)], sample_pairs=1_000)
    numbers = [pair.number for pair in taken.sample]
    assert len(set(numbers)) == 1_000 and numbers == sorted(numbers)
    assert all(pair.source == f"line {pair.number}" for pair in taken.sample)
    quarters = Counter(number // 5_000 for number in numbers)
    # Binomial: 250, with a standard deviation of 14.
    assert all(190 < quarters[quarter] < 310 for quarter in range(4))


def test_every_nth_pair_is_examined(survey):
    taken = survey(PAIRS, every=7)
    assert [pair.number for pair in taken.sample] == list(range(0, 500, 7))
    assert taken.pairs == 72


def test_a_location_is_a_file_and_a_line(corpus, tmp_path):
    corpora = [corpus(name, PAIRS[:count]) for name, count in (("a", 3), ("b", 0), ("c", 2))]
    taken = take_survey("train", corpora)
    assert [taken.location(pair.number) for pair in taken.sample] == [
        f"{tmp_path}/{line}" for line in ("a.en:1", "a.en:2", "a.en:3", "c.en:1", "c.en:2")
    ]
    assert taken.location(4, "target") == f"{tmp_path}/c.de:2"
    assert taken.corpora[taken.corpus_of(3)] == corpora[2]


def test_progress_counts_all_pairs_that_are_read(survey):
    done: list[int] = []
    survey([("a", "b")] * 25_000, every=2, progress=done.append)
    assert done == [10_000, 20_000]


def test_files_of_different_lengths_are_refused(corpus):
    text = corpus("a", PAIRS[:2])
    text.target.write_text("eins\n")
    with pytest.raises(UserError, match="same number of lines"):
        take_survey("train", [text])


@pytest.mark.parametrize("limit", [5_000, 100])
def test_all_copies_of_a_sentence_are_kept_or_none(limit):
    hashes = Hashes(limit)
    for number in range(3_000):
        hashes.add(f"sentence {number % 1_000}", number)
    kept, numbers = hashes.kept(hashes.every)
    assert len(kept) <= limit
    _, counts = np.unique(kept, return_counts=True)
    assert set(counts) == {3}
    # If not all are kept, the hash decides which: about a sixteenth or a thirty-second.
    assert len(counts) == 1_000 if limit == 5_000 else 10 < len(counts) < 100
    assert set(numbers % 1_000) == set(numbers[: len(counts)] % 1_000)


def test_sampled_hashes_can_be_compared_with_complete_ones():
    whole, sampled = Hashes(5_000), Hashes(200)
    for number in range(2_000):
        whole.add(f"sentence {number}", number)
        sampled.add(f"sentence {number}", number)
    assert sampled.every > 1
    np.testing.assert_array_equal(whole.kept(sampled.every), sampled.kept(sampled.every))
