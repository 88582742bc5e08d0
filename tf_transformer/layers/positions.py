"""Sinusoidal and learned positions (paper 3.5)."""

import keras
import numpy as np
from keras import ops


def sinusoidal_positions(positions, d_model: int):
    """Computes PE(pos, 2i) = sin(pos / 10000^(2i/D)), PE(pos, 2i+1) = cos(...) (paper 3.5).

    Sine and cosine are interleaved, as in the paper. Computed in float32 whatever the policy:
    in bfloat16 the angles would be wrong from position 256 on.

    Args:
        positions: integer tensor [T].
        d_model: D, even.

    Returns:
        float32 [T, D].
    """
    rates = 10000.0 ** (-np.arange(0, d_model, 2) / d_model)
    angles = ops.cast(positions, "float32")[:, None] * rates.astype("float32")  # [T, D / 2]
    pairs = ops.stack([ops.sin(angles), ops.cos(angles)], axis=-1)  # [T, D / 2, 2]
    return ops.reshape(pairs, (-1, d_model))


@keras.saving.register_keras_serializable(package="tf_transformer")
class PositionalEncoding(keras.layers.Layer):
    """Adds positional encodings to vectors, such as measurements or image patches.

    Args:
        positions: "sinusoidal" (paper 3.5) or "learned" (Table 3, row E).
        max_length: number of learned positions; sinusoidal ones have no limit.

    Call arguments:
        inputs: floating [B, T, D], D even. Reshape a grid [B, H, W, D] to [B, H * W, D].
        offset: position of the first column, for step-by-step decoding.

    Returns:
        [B, T, D].

    Raises:
        ValueError: if D is odd, `positions` is unknown, or learned without `max_length`, or
            `inputs` have another rank or exceed the learned positions.
    """

    def __init__(self, positions: str = "sinusoidal", max_length: int | None = None, **kwargs):
        super().__init__(**kwargs)
        if positions not in ("sinusoidal", "learned"):
            raise ValueError(
                "`positions` must be 'sinusoidal' or 'learned'. "
                f"Received: positions={positions!r}."
            )
        if positions == "learned" and max_length is None:
            raise ValueError("Learned positions need `max_length`. Received: max_length=None.")
        self.positions = positions
        self.max_length = max_length
        self.supports_masking = True

    def build(self, inputs_shape):
        if len(inputs_shape) != 3:
            raise ValueError(
                "`inputs` must be [B, T, D]; reshape a grid [B, H, W, D] to [B, H * W, D]. "
                f"Received: shape={tuple(inputs_shape)}."
            )
        self.build_positions(inputs_shape[-1])

    def build_positions(self, d_model: int):
        """Creates the position embeddings [max_length, D] if positions are learned."""
        if d_model % 2:
            raise ValueError(f"`d_model` must be even. Received: d_model={d_model}.")
        if self.positions == "learned":
            self.position_embeddings = self.add_weight(
                name="position_embeddings",
                shape=(self.max_length, d_model),
                initializer=keras.initializers.RandomNormal(stddev=0.02),
            )

    def call(self, inputs, offset=0):
        return inputs + self.encoded(inputs, inputs.shape[-1], offset)

    def encoded(self, inputs, d_model: int, offset):
        """Returns the encodings [T, D] of the positions of inputs [B, T, ...]."""
        length = inputs.shape[1]
        if length is not None and isinstance(offset, int):
            length += offset
        # A GPU would return zeros for positions beyond the table.
        if self.positions == "learned" and length is not None and length > self.max_length:
            raise ValueError(
                "`inputs` must have at most `max_length` positions if positions are learned. "
                f"Received: {length} positions, max_length={self.max_length}."
            )
        positions = offset + ops.arange(ops.shape(inputs)[1], dtype="int32")
        if self.positions == "learned":
            encoded = ops.take(self.position_embeddings, positions, axis=0)
        else:
            encoded = sinusoidal_positions(positions, d_model)
        return ops.cast(encoded, self.compute_dtype)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        config = {"positions": self.positions, "max_length": self.max_length}
        return super().get_config() | config
