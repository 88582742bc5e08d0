"""Sums over replicas, and dropout seeds that differ between replicas."""

import keras
import tensorflow as tf

# Between the dropout seeds of neighbouring replicas; larger than any seed that Keras draws.
_SEED_DISTANCE = 2**33


def sum_over_replicas(value):
    """Returns the sum of a value over all replicas."""
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
        """Gives every replica its seeds, derived from this worker's first copy."""
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
        """Assigns every replica's seeds, given those of replica 0, [number of seeds, 2]."""
        self._model.distribute_strategy.run(self._assign_here, args=(first,))

    def _assign_here(self, first: tf.Tensor) -> None:
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        distance = tf.cast(replica, "int64") * _SEED_DISTANCE
        for index, state in enumerate(self._states()):
            seed = first[index] + tf.stack([distance, tf.zeros_like(distance)])
            state.assign(tf.cast(seed, state.dtype))
