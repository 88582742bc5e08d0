"""Sums over the parts of a batch, computed one after another."""

from collections.abc import Callable

import tensorflow as tf


def sum_over_parts(compute: Callable, tensors, zeros, max_tokens: int | None):
    """Cuts `tensors` [B, ...] into parts and adds up the results of `compute` for each part.

    Args:
        compute: takes the tensors of a part and returns a structure of tensors like `zeros`.
        tensors: structure of the tensors of a batch.
        zeros: the initial sums.
        max_tokens: most positions in a part, unless it is a single row; None for one part.
    """
    if max_tokens is None:
        return compute(*tensors)
    longest = tf.reduce_max(
        [tf.shape(t)[1] for t in tf.nest.flatten(tensors) if t.shape.rank > 1]
    )
    parts, tensors = in_parts(tensors, tf.maximum(max_tokens // tf.maximum(longest, 1), 1))

    def add_part(index, sums):
        terms = compute(*tf.nest.map_structure(lambda t: t[index], tensors))
        added = tf.nest.map_structure(lambda a, b: a + tf.convert_to_tensor(b), sums, terms)
        return index + 1, added

    _, sums = tf.while_loop(
        lambda index, _: index < parts,
        add_part,
        (tf.constant(0), zeros),
        parallel_iterations=1,
    )
    return sums


def in_parts(tensors, most):
    """Cuts tensors [B, ...] into equal parts of at most `most` rows.

    Returns:
        The number of parts P, and every tensor as [P, rows, ...], filled up with rows of
        zeros, which count as padding.
    """
    rows = tf.shape(tf.nest.flatten(tensors)[0])[0]
    parts = tf.maximum(-(-rows // most), 1)
    size = -(-rows // parts)

    def cut(tensor):
        missing = parts * size - rows
        padding = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
        shape = tf.concat([[parts, size], tf.shape(tensor)[1:]], axis=0)
        return tf.reshape(tf.pad(tensor, padding), shape)

    return parts, tf.nest.map_structure(cut, tensors)
