"""Boolean attention masks, True at visible positions (paper 3.2.3)."""

from functools import reduce

from keras import ops


def padding_mask(ids, pad_id: int = 0):
    """Returns a mask that is True at real tokens: ids [B, S] -> [B, S]."""
    return ops.not_equal(ids, pad_id)


def causal_mask(length, key_length=None):
    """Returns [1, T, S], True where the key is not later than the query; S is T by default."""
    queries = ops.arange(length, dtype="int32")
    keys = queries if key_length is None else ops.arange(key_length, dtype="int32")
    return queries[None, :, None] >= keys[None, None, :]


def join_masks(*masks):
    """Returns the logical AND of broadcastable masks, ignoring None; None if all are None."""
    present = [ops.cast(mask, "bool") for mask in masks if mask is not None]
    return reduce(ops.logical_and, present) if present else None


def combine_masks(key_mask=None, *attention_masks):
    """Joins masks into one that broadcasts to scores [B, H, T, S]; None if all are None.

    Args:
        key_mask: [B, S].
        *attention_masks: [T, S], [B or 1, T, S], or [B, H, T, S].
    """
    spread = [
        mask if mask is None or len(mask.shape) == 4 else ops.expand_dims(mask, -3)
        for mask in attention_masks
    ]
    if key_mask is not None:
        key_mask = ops.expand_dims(key_mask, (1, 2))
    return join_masks(key_mask, *spread)
