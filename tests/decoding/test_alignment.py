"""Words from pieces, and the weights that alignments come from."""

import numpy as np
import pytest
import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.decoding.alignment import (
    default_layer,
    nearest_pieces,
    word_numbers,
    word_pairs,
)


@pytest.mark.parametrize(
    ("pieces", "numbers"),
    [
        ([], []),
        (["▁a"], [0]),
        (["▁a", "▁b", "▁c"], [0, 1, 2]),
        (["▁a", "b", "▁c", "d", "e", "."], [0, 0, 1, 1, 1, 1]),
        (["▁", "a", "b", "▁c"], [0, 0, 0, 1]),  # a lone space
        (["▁a", "▁", "中", "文"], [0, 1, 1, 1]),
        (["▁a", "▁", "▁b"], [0, 1, 1]),  # two spaces separate words like one
        (["a", "▁b"], [0, 1]),
        (["▁", "<0xF0>", "<0x9F>", "▁b"], [0, 0, 0, 1]),
    ],
)
def test_a_word_begins_at_a_space(pieces, numbers):
    assert word_numbers(pieces) == numbers


def test_words_are_aligned_if_any_of_their_pieces_is():
    source = ["▁un", "believ", "able", "▁thing"]
    target = ["▁Un", "ding", "▁un", "glaub", "lich"]
    assert word_pairs(source, target, [3, 3, 0, 1, 3]) == [(0, 1), (1, 0), (1, 1)]
    assert word_pairs([], target, [0] * 5) == []
    assert word_pairs(source, [], []) == []


@pytest.mark.parametrize(
    ("layers", "layer"), [(1, 1), (2, 2), (3, 3), (4, 4), (6, 5), (12, 10)]
)
def test_alignments_come_from_layer_5_of_6_or_the_same_relative_depth(layers, layer):
    assert default_layer(layers) == layer - 1


def test_the_nearest_piece_has_the_largest_mean_weight_of_the_heads():
    weights = np.random.default_rng(0).random((2, 3, 5, 6)).astype(np.float32)
    source = np.array([[9, 8, 7, 6, 5, EOS_ID], [9, 8, EOS_ID, PAD_ID, PAD_ID, PAD_ID]])
    found = nearest_pieces(tf.constant(weights), tf.constant(source, tf.int32)).numpy()
    for row, size in ((0, 5), (1, 2)):
        mean = (weights[row, 0] + weights[row, 1] + weights[row, 2]) / 3
        assert found[row].tolist() == [int(mean[step, :size].argmax()) for step in range(5)]
