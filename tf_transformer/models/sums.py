"""The sums of a training step: over parts of a batch, over chunks of logits, over replicas."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import keras
import tensorflow as tf

from tf_transformer.fast.keras_hooks import KerasModel
from tf_transformer.layers.embedding import OutputProjection, PositionalEmbedding

# Positions whose logits a CPU computes at once, and a GPU, for which starting operations takes
# longer. With fewer, accumulating the gradients of the output projection takes longer.
LOGIT_ROWS, LOGIT_ROWS_ON_GPU = 512, 4_096

# Distance between the dropout seeds of neighbouring replicas; Keras draws no seed as large.
SEED_DISTANCE = 2**33


# --- Parts of a batch --------------------------------------------------------------------


def sum_over_parts(compute: Callable, tensors, zeros, max_tokens: int | None):
    """Cuts `tensors` [B, ...] into parts and adds up the results of `compute` for each part.

    `compute` takes the tensors of a part and returns a structure of tensors like `zeros`. A
    part has at most `max_tokens` positions, unless it is a single row; None for one part.
    """
    if max_tokens is None:
        return compute(*tensors)
    # Rows of a part: as many as fit. A row has as many positions as the longest of its tensors.
    longest = tf.reduce_max(
        [tf.shape(t)[1] for t in tf.nest.flatten(tensors) if t.shape.rank > 1]
    )
    parts, tensors = in_parts(tensors, tf.maximum(max_tokens // tf.maximum(longest, 1), 1))

    def add_part(index, sums):
        terms = compute(*tf.nest.map_structure(lambda t: t[index], tensors))  # [rows, ...]
        # An embedding's gradient is sparse: its rows are added to a dense sum.
        added = tf.nest.map_structure(lambda a, b: a + tf.convert_to_tensor(b), sums, terms)
        return index + 1, added

    # One part at a time, since memory for one is all there is.
    _, sums = tf.while_loop(
        lambda index, _: index < parts, add_part, (tf.constant(0), zeros), parallel_iterations=1
    )
    return sums


def in_parts(tensors, most, always: bool = False):
    """Cuts tensors [B, ...] into P equal parts of at most `most` rows; returns P first.

    Every tensor becomes [P, rows, ...], the last part filled up with rows of zeros, which count
    as padding. A part `always` has `most` rows if the caller needs a constant.
    """
    rows = tf.shape(tf.nest.flatten(tensors)[0])[0]
    parts = tf.maximum(-(-rows // most), 1)  # rounded up; one part if there are no rows
    size = most if always else -(-rows // parts)  # 9 rows, at most 4: 3 + 3 + 3, not 4 + 4 + 1

    def cut(tensor):
        missing = parts * size - rows
        padding = [[0, missing]] + [[0, 0]] * (tensor.shape.rank - 1)
        shape = tf.concat([[parts, size], tf.shape(tensor)[1:]], axis=0)
        return tf.reshape(tf.pad(tensor, padding), shape)

    return parts, tf.nest.map_structure(cut, tensors)


# --- Replicas ----------------------------------------------------------------------------


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
        run = model.distribute_strategy.run
        self._assign = tf.function(
            lambda first: run(self._assign_here, args=(first,)), autograph=False
        )

    def spread(self) -> None:
        """Gives every replica seeds derived from this worker's first copy."""
        strategy = self._model.distribute_strategy
        if strategy.num_replicas_in_sync > 1:
            local = strategy.experimental_local_results
            # A state is a seed and the number of draws so far, [2]; the seed moves by replica.
            first = [local(seed.value)[0].numpy() for seed in self._states()]
            # This worker's first copy may belong to a replica other than 0.
            first = [[seed % SEED_DISTANCE, count] for seed, count in first]
            self._assign(tf.constant(first, "int64"))

    def _states(self) -> list[keras.Variable]:
        """Returns the states of the random generators, in layer order."""
        return [v for v in self._model.non_trainable_variables if "seed_generator" in v.path]

    def _assign_here(self, first: tf.Tensor) -> None:
        """Assigns this replica's seeds; `first` holds those of replica 0, [seeds, 2]."""
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        distance = tf.cast(replica, "int64") * SEED_DISTANCE
        for index, state in enumerate(self._states()):
            seed = first[index] + tf.stack([distance, tf.zeros_like(distance)])
            state.assign(tf.cast(seed, state.dtype))


# --- Chunks: the logits of a few rows at a time, by far the largest tensors of a step ----

# Maps labels [R], logits [R, V] and weights [R] to the sum of the loss.
Loss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


@dataclass(frozen=True)
class CompiledLoss:
    """A loss that XLA can compile, since the state of the metrics is an argument and a result.

    Attributes:
        state: returns the variables of the metrics.
        call: takes labels, logits, weights and the values of these variables; returns the sum
            of the loss and the new values.
    """

    state: Callable[[], Sequence[keras.Variable]]
    call: Callable


class ChunkedLoss:
    """The output projection and loss of a functional model, separated from its other layers.

    With a compiled loss, a chunk of fixed size is one XLA program, for batches of any shape.
    Raises ValueError if the model does not end in the projection of hidden states to logits.
    """

    def __init__(self, model: KerasModel, compiled: CompiledLoss | None = None) -> None:
        layer, hidden = model.last_call()
        if not isinstance(layer, PositionalEmbedding | OutputProjection):
            raise ValueError(
                "`chunked_loss` needs a model that ends in the projection to logits, as "
                f"Transformer does. Received: {type(layer).__name__} as its last layer."
            )
        self.body = keras.Model(model.input, hidden)
        self.reverse = isinstance(layer, PositionalEmbedding)
        self.kernel = layer.embeddings if self.reverse else layer.kernel  # [V, D], or [D, V]
        self.bias = layer.output_bias
        self.compiled = compiled
        if compiled:
            chunk = partial(self._chunk, compiled.call)
            self._program = tf.function(chunk, jit_compile=True, autograph=False)

    def gradients(
        self, inputs, labels, weights, scale, variables: Sequence[keras.Variable], loss: Loss
    ):
        """Returns the sum of the loss, and the gradients of `scale` times it for all variables.

        Labels and weights are [B, T]; `loss` is that of a chunk of rows.
        """
        # The chain rule in two halves. The tape sees the body only: it keeps no logits.
        with tf.GradientTape() as tape:
            hidden = self.body(inputs, training=True)  # [B, T, D]
        projection = [self.kernel] if self.bias is None else [self.kernel, self.bias]
        indices = {id(variable): index for index, variable in enumerate(variables)}
        projection = [v for v in projection if id(v) in indices]  # others are frozen
        if self.compiled:  # a GPU keeps int32 in the memory of the host
            labels = tf.cast(labels, tf.int64)
        # Upper half: the loss, its gradient for the hidden states, and for kernel and bias.
        rows = _rows(hidden, labels, weights)  # [B * T, D], [B * T], [B * T]
        total, upstream, sums = self._in_chunks(rows, scale, projection, loss)
        # Lower half: from the hidden states to all variables. A tied embedding is among them,
        # and gets a second gradient, as the kernel.
        upstream = tf.reshape(upstream, tf.shape(hidden))
        gradients = tape.gradient(hidden, variables, output_gradients=upstream)
        for variable, gradient in zip(projection, sums, strict=True):
            index = indices[id(variable)]
            gradients[index] = _add(gradient, gradients[index])
        return total, gradients

    def total(self, inputs, labels, weights, loss: Loss):
        """Returns the sum of the loss without dropout; takes the arguments of `gradients`."""
        rows = _rows(self.body(inputs, training=False), labels, weights)
        kernel, bias = self._projection(rows[0].dtype)

        def chunk(hidden, labels, weights):  # [R, D], [R], [R]
            return loss(labels, self._logits(hidden, kernel, bias), weights)

        most = _logit_rows() * rows[0].shape[-1]  # D positions in each row, to `sum_over_parts`
        return sum_over_parts(chunk, rows, tf.constant(0.0), most)

    def _projection(self, dtype):
        """Returns the kernel, cast to `dtype`, and the bias or None."""
        bias = None if self.bias is None else tf.convert_to_tensor(self.bias)
        return tf.cast(self.kernel, dtype), bias

    def _logits(self, hidden, kernel, bias):
        logits = tf.cast(tf.matmul(hidden, kernel, transpose_b=self.reverse), "float32")
        return logits if bias is None else logits + bias

    def _in_chunks(self, rows, scale, variables: Sequence[keras.Variable], loss: Loss):
        """Returns the loss, the gradient of the hidden states, and those of `variables`.

        `variables` contains the kernel and the bias if they are trainable.
        """
        compiled = self.compiled is not None
        # C chunks of R rows: [C, R, D], [C, R], [C, R]. What fills up the last has weight 0.
        num_chunks, chunks = in_parts(rows, _logit_rows(), always=compiled)
        kernel, bias = self._projection(rows[0].dtype)  # cast once, not in every chunk
        state = list(self.compiled.state()) if self.compiled else []

        def add_chunk(index, total, sums, written, values):
            arguments = [c[index] for c in chunks], kernel, bias, scale, sums, values
            if compiled:
                value, gradient, sums, values = self._program(*arguments)
            else:
                value, gradient, sums, values = self._chunk(_stateless(loss), *arguments)
            return index + 1, total + value, sums, written.write(index, gradient), values

        # The gradient of each chunk's hidden states is written down, [C, R, D]; those of kernel
        # and bias, [V, D] and [V], are added up, in the dtype of the variables.
        shape = [None, rows[0].shape[-1]]
        written = tf.TensorArray(rows[0].dtype, num_chunks, element_shape=shape)
        names = ["kernel" if v is self.kernel else "bias" for v in variables]
        zeros = {n: tf.zeros(v.shape, v.dtype) for n, v in zip(names, variables, strict=True)}
        _, total, sums, written, values = tf.while_loop(
            lambda index, *_: index < num_chunks,
            add_chunk,
            (tf.constant(0), tf.constant(0.0), zeros, written, [v.value for v in state]),
            parallel_iterations=1,
        )
        for variable, value in zip(state, values, strict=True):  # XLA may assign to none
            variable.assign(value)
        gradient = tf.reshape(written.stack(), (-1, shape[-1]))
        real = tf.shape(rows[0])[0]  # without the rows that fill up the last chunk
        return total, gradient[:real], [sums[name] for name in names]

    def _chunk(self, loss, chunk, kernel, bias, scale, sums, values):
        """Returns a chunk's loss and gradient, `sums` with its gradients, and the new state."""
        hidden, labels, weights = chunk  # [R, D], [R], [R]
        tensors = {"kernel": kernel, "bias": bias}
        sources = {name: tensors[name] for name in sums}
        with tf.GradientTape() as tape:
            tape.watch([hidden, sources])
            logits = self._logits(hidden, kernel, bias)  # [R, V], freed at the end
            value, values = loss(labels, logits, weights, values)
            objective = value * scale  # 1 / tokens of the whole batch, and the loss scale
        gradient, terms = tape.gradient(objective, [hidden, sources])
        added = {name: sums[name] + tf.cast(terms[name], sums[name].dtype) for name in sums}
        return value, gradient, added, values


def _stateless(loss: Loss) -> Callable:
    return lambda labels, logits, weights, values: (loss(labels, logits, weights), values)


def _logit_rows() -> int:
    return LOGIT_ROWS_ON_GPU if tf.config.list_physical_devices("GPU") else LOGIT_ROWS


def _rows(hidden, *others):
    """Flattens [B, T, D] to [N, D], and the others from [B, T] to [N]."""
    flat = tf.reshape(hidden, (-1, hidden.shape[-1]))
    return [flat, *(tf.reshape(other, (-1,)) for other in others)]


def _add(gradient, other):
    """Adds two gradients; `other` may be sparse (rows of an embedding) or None."""
    if isinstance(other, tf.IndexedSlices):
        return tf.tensor_scatter_nd_add(gradient, other.indices[:, None], other.values)
    return gradient if other is None else gradient + other
