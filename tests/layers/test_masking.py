"""Masks are True where attention is allowed, in the shape of the scores."""

import numpy as np
import pytest

from tf_transformer.layers.masking import causal_mask, combine_masks, padding_mask

KEYS = np.array([[True, True, False], [True, False, False]])  # [B, S]
CAUSAL = np.tri(3, dtype=bool)[None]  # [1, T, S]


def test_padding_has_the_id_0():
    ids = np.array([[5, 1, 2, 3, 0], [7, 0, 0, 0, 0]])
    expected = [[True, True, True, True, False], [True, False, False, False, False]]
    np.testing.assert_array_equal(padding_mask(ids), expected)


def test_causal_mask_hides_later_positions():
    np.testing.assert_array_equal(causal_mask(3), CAUSAL)


@pytest.mark.parametrize(
    ("key_mask", "attention_mask", "expected"),
    [
        (KEYS, None, KEYS[:, None, None, :]),
        (None, CAUSAL, CAUSAL[:, None]),
        (KEYS, CAUSAL, KEYS[:, None, None, :] & CAUSAL[:, None]),
        (KEYS.astype("int32"), CAUSAL.astype("int32"), (KEYS[:, None] & CAUSAL)[:, None]),
    ],
    ids=["keys", "attention", "both", "integers"],
)
def test_combined_mask_fits_the_scores(key_mask, attention_mask, expected):
    combined = np.asarray(combine_masks(key_mask, attention_mask))
    assert combined.dtype == bool
    np.testing.assert_array_equal(combined, expected)


def test_no_masks_combine_to_none():
    assert combine_masks() is None
