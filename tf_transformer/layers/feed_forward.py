"""The position-wise feed-forward network (paper 3.3) and Add & Norm (Figure 1)."""

from collections.abc import Callable

import keras
from keras import ops

from tf_transformer.fast.operations import Dropout, LayerNormalization, project, require_floats


def require_positive(**sizes):
    """Raises ValueError if a size is below 1; None stands for a default."""
    for name, size in sizes.items():
        if size is not None and size < 1:
            raise ValueError(f"`{name}` must be at least 1. Received: {size}.")


class Dense(keras.layers.Dense):
    """Keras's Dense with fewer operations around its matrix product.

    Attention reads `kernel`, which includes a LoRA adapter, and `bias` instead of calling it.
    """

    def call(self, inputs, training=None):
        return self.activation(project(inputs, self.kernel, self.bias))

    def load_own_variables(self, store):
        # Keras zeroes both sides of the adapter, which could then learn nothing.
        a = ops.convert_to_numpy(self.lora_kernel_a) if self.lora_enabled else None
        super().load_own_variables(store)
        if a is not None:
            self.lora_kernel_a.assign(a)

    def quantize(self, mode=None, type_check=True, config=None):
        raise ValueError(
            f"{self.name} cannot be quantized: it computes in floating point only, bfloat16 "
            f"included. Received: mode={mode!r}."
        )


@keras.saving.register_keras_serializable(package="tf_transformer")
class FeedForward(keras.layers.Layer):
    """max(0, x W1 + b1) W2 + b2 (paper 3.3, equation 2): [B, T, D] -> [B, T, D].

    Args:
        d_ff: inner width F.
        activation: name of a Keras activation, or a function; "relu" in the paper.
        dropout: dropout rate after the activation; the paper has none there.

    Raises:
        ValueError: if `activation` is unknown.
    """

    def __init__(
        self, d_ff: int, activation: str | Callable = "relu", dropout: float = 0.0, **kwargs
    ):
        super().__init__(**kwargs)
        self.d_ff = d_ff
        self.activation = keras.activations.get(activation)
        self.rate = dropout
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
        self.supports_masking = True

    def build(self, inputs_shape):
        options = {"dtype": self.dtype_policy, "trainable": self.trainable}
        self.inner = Dense(self.d_ff, self.activation, name="inner", **options)
        self.outer = Dense(inputs_shape[-1], name="outer", **options)
        self.inner.build(inputs_shape)
        self.outer.build((*inputs_shape[:-1], self.d_ff))

    def call(self, inputs, training=None):
        inner = self.inner(inputs)
        return self.outer(self.dropout(inner, training=training) if self.rate else inner)

    def enable_lora(self, rank: int, **options) -> None:
        """Adapts both kernels; arguments are those of `keras.layers.Dense.enable_lora`."""
        self.inner.enable_lora(rank, **options)
        self.outer.enable_lora(rank, **options)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return super().get_config() | {
            "d_ff": self.d_ff,
            "activation": keras.activations.serialize(self.activation),
            "dropout": self.rate,
        }


@keras.saving.register_keras_serializable(package="tf_transformer")
class AddAndNorm(keras.layers.Layer):
    """The residual connection around a sublayer (paper 3.1 and 5.4).

    Post-LN, as in the paper: LayerNorm(x + Dropout(Sublayer(x))). With `norm_first`:
    x + Dropout(Sublayer(LayerNorm(x))). Write either as
    `x = add_and_norm(x, sublayer(add_and_norm.before(x)))`.

    Args:
        dropout: dropout rate of the sublayer's output.
        norm_first: normalises the sublayer's input instead of the sum.
        norm_epsilon: added to the variance.

    Call arguments:
        inputs: x, [B, T, D].
        sublayer_output: Sublayer(before(x)), [B, T, D].
    """

    def __init__(
        self,
        dropout: float = 0.0,
        norm_first: bool = False,
        norm_epsilon: float = 1e-6,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.rate = dropout
        self.norm_first = norm_first
        self.norm_epsilon = norm_epsilon
        options = {"dtype": self.dtype_policy, "trainable": self.trainable}
        self.dropout = Dropout(dropout, name="dropout", **options)
        self.norm = LayerNormalization(epsilon=norm_epsilon, name="norm", **options)
        self.supports_masking = True

    def build(self, inputs_shape, sublayer_output_shape=None):
        if not self.norm.built:  # by `before`
            self.norm.build(inputs_shape)

    def before(self, inputs):
        """Returns the sublayer's input: x, or LayerNorm(x) with `norm_first`."""
        require_floats(inputs)
        return self.norm(inputs) if self.norm_first else inputs

    def call(self, inputs, sublayer_output, training=None):
        outputs = inputs + self.dropout(sublayer_output, training=training)
        return outputs if self.norm_first else self.norm(outputs)

    def compute_output_shape(self, inputs_shape, sublayer_output_shape=None):
        return inputs_shape

    def get_config(self):
        return super().get_config() | {
            "dropout": self.rate,
            "norm_first": self.norm_first,
            "norm_epsilon": self.norm_epsilon,
        }
