"""Positions (paper 3.5), embeddings, and the output projection (paper 3.4)."""

import keras
from keras import ops

from tf_transformer.base.architecture import POSITION_KINDS
from tf_transformer.fast.projections import QuantizedKernel, look_up, project
from tf_transformer.fast.recompute import current_programs
from tf_transformer.layers.attention import padding_mask
from tf_transformer.layers.positions import positions_named


@keras.saving.register_keras_serializable(package="tf_transformer")
class PositionalEncoding(keras.layers.Layer):
    """Adds positional encodings to vectors, such as measurements or image patches.

    Args:
        positions: name of a kind of `layers.positions`, such as "sinusoidal" (paper 3.5) or
            "learned" (Table 3, row E). One that acts in attention adds nothing here.
        max_length: number of learned positions; sinusoidal ones have no limit.

    Call arguments:
        inputs: floating [B, T, D], D even. Reshape a grid [B, H, W, D] to [B, H * W, D].
        offset: position of the first column, for step-by-step decoding.

    Returns:
        [B, T, D].

    Raises:
        ValueError: if D is odd, `positions` is unknown, or learned without `max_length`, or
            `inputs` have another rank or exceed the learned positions.

    Example:
        >>> keras.ops.shape(PositionalEncoding()(keras.random.normal((2, 5, 64))))
        (2, 5, 64)
    """

    def __init__(self, positions: str = "sinusoidal", max_length: int | None = None, **kwargs):
        super().__init__(**kwargs)
        self.position_kind = positions_named(positions, max_length)
        if POSITION_KINDS[positions].limited and max_length is None:
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
        self.position_embeddings = self.position_kind.build_embedding(self, d_model)

    def call(self, inputs, offset=0):
        """Returns inputs [B, T, D] with the encodings of their positions added."""
        length = inputs.shape[1]
        if length is not None and isinstance(offset, int):
            length += offset
        # A GPU would return zeros for positions beyond the table.
        limited = POSITION_KINDS[self.positions].limited
        if limited and length is not None and length > self.max_length:
            raise ValueError(
                "`inputs` must have at most `max_length` positions if positions are learned. "
                f"Received: {length} positions, max_length={self.max_length}."
            )
        positions = offset + ops.arange(ops.shape(inputs)[1], dtype="int32")
        return self.position_kind.add_to_embeddings(inputs, positions)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        config = {"positions": self.positions, "max_length": self.max_length}
        return super().get_config() | config


def project_to_logits(hidden, kernel, bias=None):
    """Returns float32 logits [B, T, V] of hidden states, a kernel [D, V] and a bias [V]."""
    logits = ops.cast(project(ops.cast(hidden, kernel.dtype), kernel), "float32")
    return logits if bias is None else logits + ops.cast(bias, "float32")


@keras.saving.register_keras_serializable(package="tf_transformer")
class PositionalEmbedding(PositionalEncoding):
    """Token embeddings times sqrt(d_model) plus positions; in reverse, the output projection.

    Args:
        vocab_size: V.
        d_model: D, even.
        positions: name of a kind of `layers.positions`, such as "sinusoidal" (paper 3.5) or
            "learned" (Table 3, row E). One that acts in attention adds nothing here.
        max_length: number of learned positions; sinusoidal ones have no limit.
        output_bias: adds a bias to the logits; the paper has none.

    Call arguments:
        inputs: integer ids [B, T], 0 for padding; hidden states [B, T, D] if `reverse`.
        reverse: projects onto the embeddings (paper 3.4): a second call of the layer,
            `embedding(hidden, reverse=True)`, ties the output projection to them.
        offset: position of the first column, for step-by-step decoding.

    Returns:
        [B, T, D], masked at padding; float32 logits [B, T, V] if `reverse`.

    Raises:
        ValueError: if `d_model` is odd, `positions` is unknown, or learned without
            `max_length`, or `inputs` are not integers [B, T] or exceed the learned positions.

    Example:
        >>> embedding = PositionalEmbedding(vocab_size=100, d_model=64)
        >>> vectors = embedding(keras.ops.array([[5, 6, 3, 0]]))
        >>> keras.ops.shape(vectors), keras.ops.shape(embedding(vectors, reverse=True))
        ((1, 4, 64), (1, 4, 100))
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
        super().__init__(positions, max_length, **kwargs)
        if d_model % 2:
            raise ValueError(f"`d_model` must be even. Received: d_model={d_model}.")
        self.vocab_size = vocab_size
        self.d_model = d_model
        self.use_bias = output_bias
        self.output_bias = None

    def build(self, inputs_shape):
        # Variance 1 after scaling. With Keras's default, positions would drown out the tokens.
        normal = keras.initializers.RandomNormal(stddev=self.d_model**-0.5)
        self.embeddings = self.add_weight(
            name="embeddings",
            shape=(self.vocab_size, self.d_model),
            initializer=normal,
            autocast=False,  # rows are looked up before casting: the gradient stays sparse
        )
        self.build_positions(self.d_model)
        if self.use_bias:
            self.output_bias = _add_output_bias(self)

    def call(self, inputs, reverse=False, offset=0):
        if reverse:
            return project_to_logits(inputs, self.output_kernel(), self.output_bias)
        _require_ids(inputs)
        rows = look_up(self.embeddings, inputs)
        if programs := current_programs():
            rest, others = {"offset": offset}, (self.embeddings, self.output_bias)
            return programs.call(self, [rows], rest, function=self._place, leave_out=others)
        return self._place(rows, offset)

    def _place(self, rows, offset):
        """Scales rows of the table and adds their positions."""
        embedded = ops.cast(rows, self.compute_dtype)
        return super().call(embedded * self.d_model**0.5, offset)

    def output_kernel(self):
        """Returns the embeddings as a kernel [D, V]."""
        if isinstance(self.embeddings, QuantizedKernel):
            return self.embeddings
        return ops.transpose(ops.cast(self.embeddings, self.compute_dtype))

    def compute_mask(self, inputs, mask=None):
        # Keras does not pass `reverse`, but only ids are integers. Logits carry no mask: Keras
        # would apply it in any loss.
        return padding_mask(inputs) if _are_integers(inputs) else None

    def compute_output_spec(self, inputs, reverse=False, offset=0):
        if reverse:
            return keras.KerasTensor((*inputs.shape[:-1], self.vocab_size), "float32")
        _require_ids(inputs)
        return keras.KerasTensor((*inputs.shape, self.d_model), self.compute_dtype)

    def get_config(self):
        return super().get_config() | {
            "vocab_size": self.vocab_size,
            "d_model": self.d_model,
            "output_bias": self.use_bias,
        }


@keras.saving.register_keras_serializable(package="tf_transformer")
class OutputProjection(keras.layers.Layer):
    """The untied pre-softmax projection: [B, T, D] -> float32 [B, T, V]."""

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

    def output_kernel(self):
        """Returns the kernel [D, V]."""
        if isinstance(self.kernel, QuantizedKernel):
            return self.kernel
        return ops.cast(self.kernel, self.compute_dtype)

    def call(self, inputs):
        return project_to_logits(inputs, self.output_kernel(), self.output_bias)

    def compute_mask(self, inputs, mask=None):
        return None

    def compute_output_spec(self, inputs):
        return keras.KerasTensor((*inputs.shape[:-1], self.vocab_size), "float32")

    def get_config(self):
        config = {"vocab_size": self.vocab_size, "output_bias": self.use_bias}
        return super().get_config() | config


def _are_integers(inputs):
    return "int" in keras.backend.standardize_dtype(inputs.dtype)


def _require_ids(inputs):
    dtype = keras.backend.standardize_dtype(inputs.dtype)
    if not _are_integers(inputs) or len(inputs.shape) != 2:
        raise ValueError(
            "`inputs` must be integer ids [B, T], from an Input with dtype='int32'; for "
            "vectors [B, T, D] use PositionalEncoding. "
            f"Received: {dtype}, shape={tuple(inputs.shape)}."
        )


def _add_output_bias(layer):
    return layer.add_weight(name="output_bias", shape=(layer.vocab_size,), initializer="zeros")
