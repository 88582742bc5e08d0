"""The coverage of a shortlist, counted by hand, and the pairs it is learned from."""

import shutil

import numpy as np
import pytest
from given_pairs import GivenPairs

from tf_transformer.decoding.shortlist import Shortlist
from tf_transformer.errors import UserError
from tf_transformer.tasks.translation.shortlist import (
    Coverage,
    Pairs,
    coverage,
    own_pairs,
    pairs_of_files,
)


def no_progress(text: str, done: int) -> None:
    """Shows nothing."""


def test_coverage_counts_target_tokens_and_candidates():
    table = np.zeros((30, 2), "int32")
    table[10], table[11] = (20, 21), (22, 0)
    shortlist = Shortlist(table, np.array([5]))
    pairs = GivenPairs(
        [
            ([10], [20, 21, 22, 5]),  # not 22, of 11; candidates 0-3, 5, 10, 20, 21
            ([11, 12], [22, 12, 13]),  # not 13; candidates 0-3, 5, 11, 12, 22
            ([12], [20]),  # not measured
            ([10, 11], [3 + 20, 5]),  # not 23; candidates 0-3, 5, 10, 11, 20, 21, 22
        ]
    )
    measured = coverage(shortlist, Pairs(pairs, np.array([0, 1, 3])))
    assert measured == Coverage(covered=6, tokens=9, candidates=8 + 8 + 10, sentences=3)
    assert measured.share == pytest.approx(2 / 3)
    assert measured.mean_candidates == pytest.approx(26 / 3)


def test_pairs_are_evenly_spaced(run):
    train, valid = own_pairs(run, 1000)
    assert len(train.rows) == len(train.corpus)
    assert len(valid.rows) == 40
    few, _ = own_pairs(run, 10)
    steps = np.diff(few.rows)
    assert few.rows[0] == 0
    assert steps.max() - steps.min() <= 1
    assert few.rows[-1] >= len(train.corpus) - steps.max()


def test_pairs_of_files_are_learned_from_or_held_out(run, trained_run):
    prefix = str(trained_run.corpus / "train")
    with pairs_of_files(run, [prefix, prefix], 400, no_progress) as (train, held_out):
        assert not set(train.rows) & set(held_out.rows)
        total = len(train.rows) + len(held_out.rows)
        assert total == len(train.corpus) <= 400
        assert len(held_out.rows) == -(-total // 50)


def test_files_of_one_pair_are_refused(run, tmp_path):
    for language in ("en", "de"):
        (tmp_path / f"one.{language}").write_text("Hello\n")
    with (
        pytest.raises(UserError, match="--train must have at least two usable pairs"),
        pairs_of_files(run, [str(tmp_path / "one")], 10, no_progress),
    ):
        pass


def test_a_run_without_its_data_asks_for_text(run):
    shutil.rmtree(run.data)
    with pytest.raises(UserError, match="Or give --train PREFIX"):
        own_pairs(run, 10)
