"""Loss and gradients of a training step, with logits computed for a chunk of rows at a time.

The logits and their gradient are by far the largest tensors of a step. The plain twin computes
them all at once: `TokenModel` without `chunked_loss`.
"""

from collections.abc import Callable, Sequence

import keras
import tensorflow as tf

from tf_transformer.fast.keras_model import KerasModel
from tf_transformer.layers.embedding import OutputProjection, PositionalEmbedding
from tf_transformer.models.sums import in_parts, sum_over_parts

# Positions whose logits are computed at once. With fewer, accumulating the gradients of the
# output projection takes longer.
LOGIT_ROWS = 512

# Maps labels [R], logits [R, V] and weights [R] to the sum of the loss.
Loss = Callable[[tf.Tensor, tf.Tensor, tf.Tensor], tf.Tensor]


class ChunkedLoss:
    """The output projection and loss of a model, separated from its other layers.

    Args:
        model: a functional model that ends in the projection of hidden states to logits.

    Raises:
        ValueError: if the model ends in another layer.
    """

    def __init__(self, model: KerasModel) -> None:
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

    def gradients(
        self, inputs, labels, weights, scale, variables: Sequence[keras.Variable], loss: Loss
    ):
        """Computes the loss, and the gradients of `scale` times the loss.

        Args:
            inputs: inputs of the model.
            labels: [B, T].
            weights: weights of the labels, [B, T].
            scale: float32 scalar.
            variables: the trainable variables.
            loss: loss of a chunk of rows.

        Returns:
            The sum of the loss, and a gradient for each variable.
        """
        with tf.GradientTape() as tape:
            hidden = self.body(inputs, training=True)
        projection = [self.kernel] if self.bias is None else [self.kernel, self.bias]
        indices = {id(variable): index for index, variable in enumerate(variables)}
        projection = [v for v in projection if id(v) in indices]  # others are frozen
        rows = _rows(hidden, labels, weights)
        total, upstream, sums = self._in_chunks(rows, scale, projection, loss)
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

        def chunk(hidden, labels, weights):
            return loss(labels, self._logits(hidden, kernel, bias), weights)

        most = LOGIT_ROWS * rows[0].shape[-1]
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
        num_chunks, chunks = in_parts(rows, LOGIT_ROWS)
        kernel, bias = self._projection(rows[0].dtype)
        sources = [kernel if v is self.kernel else bias for v in variables]

        def add_chunk(index, total, sums, written):
            hidden, labels, weights = (chunk[index] for chunk in chunks)
            with tf.GradientTape() as tape:
                tape.watch([hidden, *sources])
                value = loss(labels, self._logits(hidden, kernel, bias), weights)
                objective = value * scale
            gradient, *terms = tape.gradient(objective, [hidden, *sources])
            sums = [a + tf.cast(b, a.dtype) for a, b in zip(sums, terms, strict=True)]
            return index + 1, total + value, sums, written.write(index, gradient)

        shape = [None, rows[0].shape[-1]]
        written = tf.TensorArray(rows[0].dtype, num_chunks, element_shape=shape)
        zeros = [tf.zeros(v.shape, v.dtype) for v in variables]
        _, total, sums, written = tf.while_loop(
            lambda index, *_: index < num_chunks,
            add_chunk,
            (tf.constant(0), tf.constant(0.0), zeros, written),
            parallel_iterations=1,
        )
        gradient = tf.reshape(written.stack(), (-1, shape[-1]))
        return total, gradient[: tf.shape(rows[0])[0]], sums


def _rows(hidden, *others):
    """Flattens [B, T, D] to [N, D], and the others from [B, T] to [N]."""
    flat = tf.reshape(hidden, (-1, hidden.shape[-1]))
    return [flat, *(tf.reshape(other, (-1,)) for other in others)]


def _add(gradient, other):
    """Adds two gradients; `other` may be sparse (rows of an embedding) or None."""
    if isinstance(other, tf.IndexedSlices):
        return tf.tensor_scatter_nd_add(gradient, other.indices[:, None], other.values)
    return gradient if other is None else gradient + other
