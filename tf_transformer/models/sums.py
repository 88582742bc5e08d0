"""Sums over the parts of a batch and over replicas, and dropout seeds of replicas."""

from collections.abc import Callable

import keras
import tensorflow as tf

# Distance between the dropout seeds of neighbouring replicas; Keras draws no seed as large.
_SEED_DISTANCE = 2**33


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
        The number of parts P, and every tensor as [P, rows, ...], the last part filled up with
        rows of zeros, which count as padding.
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


def sum_over_replicas(value):
    """Sums a value over all replicas."""
    context = tf.distribute.get_replica_context()
    if context.num_replicas_in_sync == 1:
        return value
    return context.all_reduce(tf.distribute.ReduceOp.SUM, value)


class ReplicaSeeds:
    """The dropout seeds of a model: on replica r, those of replica 0 plus r * 2^33."""

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._assign = tf.function(self._assign_everywhere, autograph=False)

    def spread(self) -> None:
        """Gives every replica seeds derived from this worker's first copy."""
        strategy = self._model.distribute_strategy
        if strategy.num_replicas_in_sync > 1:
            local = strategy.experimental_local_results
            first = [local(seed.value)[0].numpy() for seed in self._states()]
            # This worker's first copy may belong to a replica other than 0.
            first = [[seed % _SEED_DISTANCE, count] for seed, count in first]
            self._assign(tf.constant(first, "int64"))

    def _states(self) -> list[keras.Variable]:
        """Returns the states of the random generators, in layer order."""
        return [v for v in self._model.non_trainable_variables if "seed_generator" in v.path]

    def _assign_everywhere(self, first: tf.Tensor) -> None:
        """Assigns every replica's seeds; `first` holds those of replica 0, [seeds, 2]."""
        self._model.distribute_strategy.run(self._assign_here, args=(first,))

    def _assign_here(self, first: tf.Tensor) -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        distance = tf.cast(replica, "int64") * _SEED_DISTANCE
        for index, state in enumerate(self._states()):
            seed = first[index] + tf.stack([distance, tf.zeros_like(distance)])
            state.assign(tf.cast(seed, state.dtype))
