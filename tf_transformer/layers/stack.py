"""The base of encoder and decoder layers, with their sublayers' arguments; N layers."""

from inspect import Parameter, Signature, signature
from typing import Any

import keras

from tf_transformer.fast.dropout import Dropout
from tf_transformer.fast.normalization import LayerNormalization
from tf_transformer.layers.attention import MultiHeadAttention
from tf_transformer.layers.feed_forward import AddAndNorm, FeedForward


def accepted(cls: type, arguments: dict[str, Any]) -> dict[str, Any]:
    """Returns those of the arguments that the constructor of a layer takes."""
    names = signature(cls).parameters
    return {name: value for name, value in arguments.items() if name in names}


# The optional arguments of the sublayers, with their defaults.
_OPTIONS = {
    name: parameter.default
    for cls in (MultiHeadAttention, FeedForward, AddAndNorm)
    for name, parameter in signature(cls).parameters.items()
    if parameter.default is not Parameter.empty
    and name not in ("kernel_initializer", "use_bias")
}


# Rates beside the paper's `dropout`, which is that of `AddAndNorm`.
_DROPOUTS = {"attention_dropout": 0.0, "activation_dropout": 0.0}


def _signature(*required: str) -> Signature:
    options = {"attention_bias": False} | _DROPOUTS | _OPTIONS
    positional, keyword = Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY
    return Signature(
        [
            *(Parameter(name, positional, annotation=int) for name in required),
            *(Parameter(name, keyword, default=value) for name, value in options.items()),
            Parameter("kwargs", Parameter.VAR_KEYWORD),
        ]
    )


class TransformerLayer(keras.layers.Layer):
    """An encoder or decoder layer: passes its arguments on to the sublayers that take them.

    Args:
        num_heads: H.
        d_ff: F.
        attention_bias: `use_bias` of `MultiHeadAttention`.
        attention_dropout, activation_dropout: `dropout` of `MultiHeadAttention` and of
            `FeedForward`.
        **options: other arguments of `MultiHeadAttention` (key_dim, value_dim), `FeedForward`
            (activation) and `AddAndNorm` (dropout, norm_first, norm_epsilon); name and dtype.
    """

    __signature__ = _signature("num_heads", "d_ff")

    def __init__(self, num_heads: int, d_ff: int, *, attention_bias: bool = False, **options):
        defaults = _DROPOUTS | _OPTIONS
        arguments = {name: options.pop(name, default) for name, default in defaults.items()}
        super().__init__(**options)
        sizes = {"num_heads": num_heads, "d_ff": d_ff, "attention_bias": attention_bias}
        self.arguments = sizes | arguments
        self.supports_masking = True
        self.add_sublayers()

    def add_sublayers(self):
        """Creates the sublayers, by the methods below."""
        raise NotImplementedError

    def attention(self, name: str) -> MultiHeadAttention:
        """Creates an attention sublayer."""
        bias, rate = (self.arguments[f"attention_{kind}"] for kind in ("bias", "dropout"))
        return self.make(MultiHeadAttention, name, use_bias=bias, dropout=rate)

    def inner_network(self, name: str) -> FeedForward:
        """Creates the feed-forward sublayer."""
        return self.make(FeedForward, name, dropout=self.arguments["activation_dropout"])

    def make(self, cls: type, name: str, **options) -> keras.layers.Layer:
        """Creates a sublayer with those of this layer's arguments that it takes."""
        options = accepted(cls, self.arguments) | options
        return cls(**options, name=name, dtype=self.dtype_policy)

    def get_config(self):
        return super().get_config() | self.arguments


class Stack(TransformerLayer):
    """Dropout on the embedded input (paper 5.4), then N layers of `layer_class`.

    Args:
        num_layers: N.
        **arguments: those of `TransformerLayer`. With `norm_first` a last LayerNorm follows,
            since the residual path has none.
    """

    __signature__ = _signature("num_layers", "num_heads", "d_ff")
    layer_class: type[TransformerLayer]

    def __init__(self, num_layers: int, *args, **arguments):
        self.num_layers = num_layers
        super().__init__(*args, **arguments)

    def add_sublayers(self):
        """Creates dropout, layers and the last norm."""
        policy, arguments = self.dtype_policy, self.arguments
        self.dropout = Dropout(arguments["dropout"], name="dropout", dtype=policy)
        self.layers = [
            self.layer_class(**arguments, name=f"layer_{i}", dtype=policy)
            for i in range(self.num_layers)
        ]
        self.norm = None
        if arguments["norm_first"]:
            epsilon = arguments["norm_epsilon"]
            self.norm = LayerNormalization(epsilon=epsilon, name="norm", dtype=policy)

    def build_layers(self, *shapes):
        """Builds every layer for these input shapes, and the norm for the first of them."""
        for layer in self.layers:
            layer.build(*shapes)
        if self.norm:
            self.norm.build(shapes[0])

    def last_norm(self, x):
        """Normalizes the output of the last layer with `norm_first`."""
        return self.norm(x) if self.norm else x

    def get_config(self):
        return super().get_config() | {"num_layers": self.num_layers}
