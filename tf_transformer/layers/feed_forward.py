"""The position-wise feed-forward network (paper 3.3) and Add & Norm (Figure 1)."""

from collections.abc import Callable

import keras
from keras import ops

from tf_transformer.fast.dropout import Dropout
from tf_transformer.fast.layer_norm import LayerNormalization
from tf_transformer.fast.projections import project, require_floats

# Gated networks (Shazeer 2020, arXiv 2002.05202) by name: the activation of the gate.
GATES = {"swiglu": "silu", "geglu": "gelu"}
NORMS = {"layer": LayerNormalization, "rms": keras.layers.RMSNormalization}


def activation_of(activation: str | Callable) -> str | Callable:
    """Returns a Keras activation as a function, or a gate's name; ValueError for any other."""
    gates = isinstance(activation, str) and activation in GATES
    return activation if gates else keras.activations.get(activation)


def serialized(activation: str | Callable) -> str | dict:
    """Returns what `activation_of` turns back into the activation."""
    return activation if activation in GATES else keras.activations.serialize(activation)


def make_norm(kind: str, epsilon: float, **options) -> keras.layers.Layer:
    """Returns a norm: "layer" (Ba et al. 2016) or "rms" (Zhang and Sennrich 2019)."""
    norm = NORMS[kind](epsilon=epsilon, name="norm", **options)
    norm.supports_masking = True  # which Keras's RMSNormalization does not say
    return norm


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
            "Keras cannot quantize a layer of this package, which computes in floating point, "
            "bfloat16 included. A trained run is loaded in int8 by "
            f"`tf_transformer.load(run, precision='int8')`. Received: mode={mode!r}."
        )


@keras.saving.register_keras_serializable(package="tf_transformer")
class FeedForward(keras.layers.Layer):
    """max(0, x W1 + b1) W2 + b2 (paper 3.3, equation 2): [B, T, D] -> [B, T, D].

    With "swiglu" or "geglu", the activated x W1 + b1 is multiplied by another projection of x,
    `gated`, of the same width (Shazeer 2020).

    Args:
        d_ff: inner width F.
        activation: "swiglu", "geglu", a Keras activation's name, or a function; "relu" in the
            paper.
        dropout: dropout rate after the activation; the paper has none there.

    Raises:
        ValueError: if `activation` is unknown.

    Example:
        >>> keras.ops.shape(FeedForward(d_ff=256)(keras.random.normal((2, 5, 64))))
        (2, 5, 64)
    """

    def __init__(
        self, d_ff: int, activation: str | Callable = "relu", dropout: float = 0.0, **kwargs
    ):
        super().__init__(**kwargs)
        self.d_ff = d_ff
        self.activation = activation_of(activation)
        self.dropout_rate = dropout
        self.dropout = Dropout(dropout, name="dropout", dtype=self.dtype_policy)
        self.supports_masking = True

    def build(self, inputs_shape):
        options = {"dtype": self.dtype_policy, "trainable": self.trainable}
        inner = GATES.get(self.activation, self.activation)
        self.inner, self.gated = Dense(self.d_ff, inner, name="inner", **options), None
        if self.activation in GATES:
            self.gated = Dense(self.d_ff, name="gated", **options)
            self.gated.build(inputs_shape)
        self.outer = Dense(inputs_shape[-1], name="outer", **options)
        self.inner.build(inputs_shape)
        self.outer.build((*inputs_shape[:-1], self.d_ff))

    def call(self, inputs, training=None):
        inner = self.inner(inputs)
        if self.gated:
            inner = inner * self.gated(inputs)
        return self.outer(
            self.dropout(inner, training=training) if self.dropout_rate else inner
        )

    def enable_lora(self, rank: int, **options) -> None:
        """Adapts every kernel; arguments are those of `keras.layers.Dense.enable_lora`."""
        for dense in filter(None, (self.inner, self.gated, self.outer)):
            dense.enable_lora(rank, **options)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return super().get_config() | {
            "d_ff": self.d_ff,
            "activation": serialized(self.activation),
            "dropout": self.dropout_rate,
        }


@keras.saving.register_keras_serializable(package="tf_transformer")
class AddAndNorm(keras.layers.Layer):
    """The residual connection around a sublayer (paper 3.1 and 5.4).

    Around every sublayer, `norm_first` moves the norm from the end to the beginning::

        post-LN    x -+- Sublayer - Dropout - (+) - Norm ->          as in the paper
                      |                        |
                      +------------------------+

        pre-LN     x -+- Norm - Sublayer - Dropout - (+) ->          with `norm_first`
                      |                               |
                      +-------------------------------+

    Write either as `x = add_and_norm(x, sublayer(add_and_norm.before(x)))`: `before` is what
    stands before the sublayer, and the call what stands behind it.

    Args:
        dropout: dropout rate of the sublayer's output.
        norm_first: normalises the sublayer's input instead of the sum.
        norm_epsilon: added to the variance.
        norm: "layer", as in the paper, or "rms".

    Call arguments:
        inputs: x, [B, T, D].
        sublayer_output: Sublayer(before(x)), [B, T, D].

    Example:
        >>> add_and_norm, feed_forward = AddAndNorm(dropout=0.1), FeedForward(d_ff=256)
        >>> x = keras.random.normal((2, 5, 64))
        >>> keras.ops.shape(add_and_norm(x, feed_forward(add_and_norm.before(x))))
        (2, 5, 64)
    """

    def __init__(
        self,
        dropout: float = 0.0,
        norm_first: bool = False,
        norm_epsilon: float = 1e-6,
        norm: str = "layer",
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.dropout_rate = dropout
        self.norm_first = norm_first
        self.norm_epsilon = norm_epsilon
        self.norm_kind = norm
        options = {"dtype": self.dtype_policy, "trainable": self.trainable}
        self.dropout = Dropout(dropout, name="dropout", **options)
        self.norm = make_norm(norm, norm_epsilon, **options)
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
            "dropout": self.dropout_rate,
            "norm_first": self.norm_first,
            "norm_epsilon": self.norm_epsilon,
            "norm": self.norm_kind,
        }
