"""How sentences are put together."""

import numpy as np
import pytest

from tf_transformer.decoding.batches import by_length, padded


@pytest.mark.parametrize("positions", [0, 7, 40, 1000])
def test_every_row_is_in_one_batch_of_bounded_size(positions):
    lengths = np.random.default_rng(0).integers(1, 30, 200).tolist()
    batches = list(by_length(lengths, positions))
    assert sorted(row for rows in batches for row in rows) == list(range(200))
    longest = [lengths[rows[0]] for rows in batches]
    assert longest == sorted(longest, reverse=True)
    for rows in batches:
        assert len(rows) == 1 or len(rows) * max(lengths[row] for row in rows) <= positions


def test_rows_are_padded_behind_with_pads():
    rows = [np.array([5, 6, 3]), np.array([3]), np.array([], "int32")]
    assert padded(rows).tolist() == [[5, 6, 3], [3, 0, 0], [0, 0, 0]]
