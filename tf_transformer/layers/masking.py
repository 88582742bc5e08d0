"""Boolean attention masks, True at visible positions (paper 3.2.3)."""

from keras import ops


def padding_mask(ids, pad_id: int = 0):
    """True at real tokens: [B, S] ids -> [B, S]."""
    return ops.not_equal(ids, pad_id)


def causal_mask(length):
    """True if the key is not later than the query: [1, T, T]."""
    positions = ops.arange(length, dtype="int32")
    return positions[None, :, None] >= positions[None, None, :]


def combine_masks(key_mask=None, attention_mask=None):
    """Joins [B, S] and [B or 1, T, S] into a mask for [B, H, T, S] scores, or None."""
    if key_mask is not None:
        key_mask = ops.expand_dims(ops.cast(key_mask, "bool"), (1, 2))
    if attention_mask is not None:
        attention_mask = ops.cast(attention_mask, "bool")[:, None, :, :]
    if key_mask is None or attention_mask is None:
        return attention_mask if key_mask is None else key_mask
    return ops.logical_and(key_mask, attention_mask)  # [B, 1, T, S]
