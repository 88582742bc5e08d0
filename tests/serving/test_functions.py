"""Rows computed in groups: the same results, within the limit on positions."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.export.functions import in_groups

IDS = tf.TensorSpec([None, None], tf.int32)
NUMBERS = tf.TensorSpec([None], tf.float32)
POSITIONS = 12


def padded(lengths: list[int]) -> np.ndarray:
    """Row r holds 10 r + 1, 10 r + 2 ..."""
    width = max(lengths, default=0)
    rows = [
        [10 * row + 1 + column if column < length else 0 for column in range(width)]
        for row, length in enumerate(lengths)
    ]
    return np.array(rows, "int32").reshape(len(lengths), width)


class Recorder:
    """A function of ids and a number for each row that records the shapes of its calls."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, int]] = []

    def __call__(self, ids: tf.Tensor, numbers: tf.Tensor) -> dict[str, tf.Tensor]:
        shape = tf.numpy_function(self._record, [tf.shape(ids)], tf.int32)
        with tf.control_dependencies([shape]):
            both = tf.stack([ids, 2 * ids], axis=1)  # [B, 2, width]
        return {"both": both, "sum": tf.reduce_sum(tf.cast(ids, "float32"), 1) + numbers}

    def _record(self, shape: np.ndarray) -> np.ndarray:
        self.shapes.append(tuple(shape.tolist()))
        return shape


CASES = [
    [],
    [1],
    [0, 0],
    [3, 0, 20, 1, 4, 4],
    [1] * 30,
    *([*order] for order in itertools.permutations([1, 5, 6, 13])),
]


@pytest.mark.parametrize("lengths", CASES, ids=str)
def test_groups_give_the_same_results_as_all_rows_at_once(lengths):
    ids = padded(lengths)
    numbers = np.arange(len(lengths), dtype="float32") / 4
    recorder = Recorder()
    found = in_groups(recorder, [IDS, NUMBERS], POSITIONS)(ids, numbers)
    assert found["both"].shape == (len(lengths), 2, ids.shape[1])
    np.testing.assert_array_equal(found["both"], np.stack([ids, 2 * ids], axis=1))
    np.testing.assert_array_equal(found["sum"], ids.sum(axis=1) + numbers)
    for rows, width in recorder.shapes:
        assert rows == 1 or rows * width <= POSITIONS
    # As few groups, and as narrow, as that allows.
    assert sum(rows for rows, _ in recorder.shapes) == len(lengths)
    for (rows, width), (_, narrower) in itertools.pairwise(recorder.shapes):
        assert narrower <= width
        assert (rows + 1) * max(width, 1) > POSITIONS


def test_the_widest_matrix_sets_the_groups_and_each_is_cut_to_its_own_width():
    shapes = []

    def function(one: tf.Tensor, other: tf.Tensor) -> tf.Tensor:
        def record(*ids: np.ndarray) -> np.int32:
            shapes.append([matrix.shape for matrix in ids])
            return np.int32(0)

        zero = tf.ensure_shape(tf.numpy_function(record, [one, other], tf.int32), [])
        return tf.reduce_sum(one, axis=1) - tf.reduce_sum(other, axis=1) + zero

    one, other = padded([2, 3, 1, 1]), padded([1, 1, 9, 2])
    found = in_groups(function, [IDS, IDS], POSITIONS)(one, other)
    assert found.numpy().tolist() == (one.sum(axis=1) - other.sum(axis=1)).tolist()
    assert shapes == [[(1, 1), (1, 9)], [(3, 3), (3, 2)]]


def test_padding_inside_a_row_does_not_end_it():
    ids = np.array([[5, 0, 6, 0], [7, 0, 0, 0]], "int32")
    found = in_groups(lambda ids: 2 * ids, [IDS], 1)(ids)
    np.testing.assert_array_equal(found, 2 * ids[:, :3])
