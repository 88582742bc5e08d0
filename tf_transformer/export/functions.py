"""TensorFlow functions of signatures: their arguments, and computation in groups of rows.

B batch. Groups of rows of similar length bound the memory of a request: a row of a thousand
tokens neither widens short rows nor is computed together with many others of its length.
"""

import functools
from collections.abc import Callable, Sequence
from typing import TypeAlias

import tensorflow as tf

from tf_transformer.config import PAD_ID

Outputs = dict[str, tf.Tensor]
Function: TypeAlias = tf.types.experimental.PolymorphicFunction


def exported(function: Callable, *specs: tf.TensorSpec) -> Function:
    """Returns a TensorFlow function whose arguments have these specs."""
    return tf.function(function, input_signature=specs, autograph=False)


def of_vectors(method: Callable[..., Outputs], **types: tf.DType) -> Function:
    """Returns a TensorFlow function whose arguments are vectors with these names and types."""
    specs = [tf.TensorSpec([None], dtype, name=name) for name, dtype in types.items()]
    return exported(
        lambda *vectors: method(*(tf.ensure_shape(vector, [None]) for vector in vectors)),
        *specs,
    )


def longest(sizes: tf.Tensor) -> tf.Tensor:
    """Returns the largest of sizes [B]; 0 for an empty batch, whose maximum is negative."""
    return tf.maximum(tf.reduce_max(sizes), 0)


def in_groups(function: Callable, specs: Sequence[tf.TensorSpec], positions: int) -> Callable:
    """Returns a TensorFlow function that computes `function` one group of rows at a time.

    Outputs of different widths are padded with zeros.

    Args:
        function: takes tensors and returns a nest of tensors, all with dimension 0 = B. The
            outputs of a row must depend on that row alone.
        specs: specs of its arguments. A matrix holds padded ids, and is cut to the longest row
            of a group.
        positions: maximum positions in a group, its rows times its longest row; a group has at
            least one row.
    """
    compute = exported(function, *specs)
    outputs = compute.get_concrete_function().structured_outputs

    def grouped(*tensors):
        lengths = functools.reduce(tf.maximum, map(_lengths, filter(_is_matrix, tensors)))
        order = tf.argsort(lengths, direction="DESCENDING", stable=True)

        def add_group(start, results):
            longest = tf.maximum(lengths[order[start]], 1)
            end = start + tf.maximum(positions // longest, 1)
            group = order[start:end]
            outputs = compute(*(_rows(tensor, group) for tensor in tensors))
            return end, tf.nest.map_structure(_append, results, outputs)

        nothing = tf.nest.map_structure(_empty, outputs)
        _, results = tf.while_loop(
            lambda start, _: start < tf.size(order),
            add_group,
            (tf.constant(0), nothing),
            shape_invariants=(
                tf.TensorShape([]),
                tf.nest.map_structure(lambda spec: spec.shape, outputs),
            ),
            parallel_iterations=1,
        )
        back = tf.argsort(order)  # the inverse, in an operation that LiteRT has
        return tf.nest.map_structure(lambda result: tf.gather(result, back), results)

    return exported(grouped, *specs)


def _is_matrix(tensor: tf.Tensor) -> bool:
    return tensor.shape.rank == 2


def _lengths(ids: tf.Tensor) -> tf.Tensor:
    """Returns int32 [B]: the length of each row of ids [B, width] without its padding."""
    lengths = tf.range(1, tf.shape(ids)[1] + 1)
    return tf.maximum(tf.reduce_max(tf.where(ids == PAD_ID, 0, lengths), axis=1), 0)


def _rows(tensor: tf.Tensor, rows: tf.Tensor) -> tf.Tensor:
    chosen = tf.gather(tensor, rows)
    return chosen[:, : tf.reduce_max(_lengths(chosen))] if _is_matrix(tensor) else chosen


def _empty(spec: tf.TensorSpec) -> tf.Tensor:
    """Returns an output without rows."""
    return tf.zeros([0, *(size or 0 for size in spec.shape[1:])], spec.dtype)


def _append(before: tf.Tensor, more: tf.Tensor) -> tf.Tensor:
    """Concatenates rows, padded to the wider of the two."""
    size = tf.maximum(tf.shape(before)[1:], tf.shape(more)[1:])

    def widened(tensor: tf.Tensor) -> tf.Tensor:
        missing = tf.pad(size - tf.shape(tensor)[1:], [[1, 0]])
        return tf.pad(tensor, tf.stack([tf.zeros_like(missing), missing], axis=1))

    both = tf.concat([widened(before), widened(more)], axis=0)
    both.set_shape(before.shape)  # LiteRT has no `ensure_shape` for partially known shapes
    return both
