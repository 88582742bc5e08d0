"""Embeddings and positions (paper 3.4 and 3.5)."""

import keras
import numpy as np
from keras import ops

from tf_transformer.fast.tensors import project
from tf_transformer.layers.masking import padding_mask


def sinusoidal_positions(positions, d_model: int):
    """PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(...) (paper 3.5).

    Sine and cosine are interleaved as the paper prints them. Computed in float32 whatever the
    policy: in bfloat16 the angles would be wrong from position 256 on.

    Args:
        positions: integer tensor [T].
        d_model: even width D.

    Returns:
        float32 [T, D].
    """
    rates = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    angles = ops.cast(positions, "float32")[:, None] * rates.astype("float32")  # [T, D / 2]
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [T, D / 2, 2]
    return ops.reshape(pairs, (-1, d_model))


def project_to_logits(hidden, kernel, bias=None):
    """Returns float32 logits [B, T, V] of hidden states, a kernel [D, V] and a bias [V]."""
    logits = ops.cast(project(ops.cast(hidden, kernel.dtype), kernel), "float32")
    return logits if bias is None else logits + ops.cast(bias, "float32")


@keras.saving.register_keras_serializable(package="tf_transformer")
class PositionalEmbedding(keras.layers.Layer):
    """Token embeddings times sqrt(d_model), plus positions; reversed, the output projection.

    Args:
        vocab_size: V.
        d_model: D, even.
        positions: "sinusoidal" (paper 3.5) or "learned" (Table 3, row E).
        max_length: number of learned positions; sinusoidal ones have no limit.
        output_bias: adds a bias to the logits; the paper has none.

    Call arguments:
        inputs: integer ids [B, T], 0 for padding; hidden states [B, T, D] if `reverse`.
        reverse: project on the embeddings (paper 3.4): a second call of the layer,
            `embedding(hidden, reverse=True)`, ties the output projection to them.
        offset: position of the first column, for decoding step by step.

    Returns:
        [B, T, D], masked at padding; float32 logits [B, T, V] if `reverse`.

    Raises:
        ValueError: if `d_model` is odd, `positions` unknown or learned without `max_length`,
            or `inputs` longer than the learned positions.
    """

    def __init__(
        self,
        vocab_size: int,
        d_model: int,
        positions: str = "sinusoidal",
        max_length: int | None = None,
        output_bias: bool = False,
        **kwargs,
    ):
        super().__init__(**kwargs)
        if d_model % 2:
            raise ValueError(f"`d_model` must be even. Received: d_model={d_model}.")
        if positions not in ("sinusoidal", "learned"):
            raise ValueError(
                "`positions` must be 'sinusoidal' or 'learned'. "
                f"Received: positions={positions!r}."
            )
        if positions == "learned" and max_length is None:
            raise ValueError("Learned positions need `max_length`. Received: max_length=None.")
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.positions = positions
        self.max_length = max_length
        self.use_bias = output_bias
        self.output_bias = None
        self.supports_masking = True

    def build(self, inputs_shape):
        # Keras's default would drown the words in the positions: variance 1 after the scaling.
        normal = keras.initializers.RandomNormal(stddev=self.d_model**-0.5)
        self.embeddings = self.add_weight(
            name="embeddings", shape=(self.vocab_size, self.d_model), initializer=normal
        )
        if self.positions == "learned":
            self.position_embeddings = self.add_weight(
                name="position_embeddings",
                shape=(self.max_length, self.d_model),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )
        if self.use_bias:
            self.output_bias = _add_output_bias(self)

    def call(self, inputs, reverse=False, offset=0):
        if reverse:
            return project_to_logits(inputs, self.output_kernel(), self.output_bias)
        self._check_length(inputs)
        embedded = ops.take(self.embeddings, inputs, axis=0) * self.d_model**0.5
        positions = offset + ops.arange(ops.shape(inputs)[1], dtype="int32")
        if self.positions == "learned":
            encoded = ops.take(self.position_embeddings, positions, axis=0)
        else:
            encoded = sinusoidal_positions(positions, self.d_model)
        return ops.cast(embedded, self.compute_dtype) + ops.cast(encoded, self.compute_dtype)

    def _check_length(self, inputs):
        # A GPU would return zeros for positions beyond the table.
        length = inputs.shape[1]
        if self.positions == "learned" and length is not None and length > self.max_length:
            raise ValueError(
                "`inputs` must have at most `max_length` positions where these are learned. "
                f"Received: {length} positions, max_length={self.max_length}."
            )

    def output_kernel(self, candidates=None):
        """Returns the embeddings as a kernel [D, V], or [D, C] for candidates, int [C]."""
        rows = self.embeddings
        if candidates is not None:
            rows = ops.take(rows, candidates, axis=0)
        return ops.transpose(ops.cast(rows, self.compute_dtype))

    def compute_mask(self, inputs, mask=None):
        # Keras does not pass `reverse`: ids have rank 2. Logits carry no mask, which would
        # enter any loss.
        return padding_mask(inputs) if len(inputs.shape) == 2 else None

    def compute_output_spec(self, inputs, reverse=False, offset=0):
        if reverse:
            return keras.KerasTensor((*inputs.shape[:-1], self.vocab_size), "float32")
        return keras.KerasTensor((*inputs.shape, self.d_model), self.compute_dtype)

    def get_config(self):
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "positions": self.positions,
            "max_length": self.max_length,
            "output_bias": self.use_bias,
        }


@keras.saving.register_keras_serializable(package="tf_transformer")
class OutputProjection(keras.layers.Layer):
    """The untied pre-softmax projection: [B, T, D] -> float32 [B, T, V].

    Args:
        vocab_size: V.
        output_bias: adds a bias to the logits; the paper has none.
    """

    def __init__(self, vocab_size: int, output_bias: bool = False, **kwargs):
        super().__init__(**kwargs)
        self.vocab_size = vocab_size
        self.use_bias = output_bias
        self.output_bias = None

    def build(self, inputs_shape):
        d_model = inputs_shape[-1]
        normal = keras.initializers.RandomNormal(stddev=d_model**-0.5)
        self.kernel = self.add_weight(
            name="kernel", shape=(d_model, self.vocab_size), initializer=normal
        )
        if self.use_bias:
            self.output_bias = _add_output_bias(self)

    def output_kernel(self, candidates=None):
        """Returns the kernel [D, V], or [D, C] for candidates, int [C]."""
        columns = self.kernel
        if candidates is not None:
            columns = ops.take(columns, candidates, axis=1)
        return ops.cast(columns, self.compute_dtype)

    def call(self, inputs):
        return project_to_logits(inputs, self.output_kernel(), self.output_bias)

    def compute_mask(self, inputs, mask=None):
        return None

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((*inputs.shape[:-1], self.vocab_size), "float32")

    def get_config(self):
        config = {"vocab_size": self.vocab_size, "output_bias": self.use_bias}
        return super().get_config() | config


def _add_output_bias(layer):
    return layer.add_weight(name="output_bias", shape=(layer.vocab_size,), initializer="zeros")
