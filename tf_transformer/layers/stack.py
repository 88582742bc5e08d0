"""What encoder and decoder share: the arguments of a layer, and N equal layers."""

import keras

from tf_transformer.fast.dropout import Dropout
from tf_transformer.fast.normalization import LayerNormalization
from tf_transformer.layers.attention import MultiHeadAttention
from tf_transformer.layers.feed_forward import NORM_EPSILON, AddAndNorm, FeedForward


class TransformerLayer(keras.layers.Layer):
    """The arguments of an encoder or decoder layer, and the sublayers they make.

    Args:
        num_heads: H.
        d_ff: inner width F of the feed-forward network.
        key_dim, value_dim: sizes per head; d_model / num_heads by default.
        dropout: rate on each sublayer's output.
        norm_first: pre-LN instead of the paper's post-LN.
        attention_bias: biases in the projections of attention, which the paper has not.
        activation: of the feed-forward network, see `FeedForward`.
        norm_epsilon: of every layer norm.
    """

    def __init__(
        self,
        num_heads: int,
        d_ff: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        norm_first: bool = False,
        attention_bias: bool = False,
        activation: str = "relu",
        norm_epsilon: float = NORM_EPSILON,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.arguments = {
            "num_heads": num_heads,
            "d_ff": d_ff,
            "key_dim": key_dim,
            "value_dim": value_dim,
            "dropout": dropout,
            "norm_first": norm_first,
            "attention_bias": attention_bias,
            "activation": activation,
            "norm_epsilon": norm_epsilon,
        }
        self.supports_masking = True
        self.add_sublayers()

    def add_sublayers(self):
        """Makes the layer's attributes, by the three methods below or of its own."""
        raise NotImplementedError

    def attention(self, name: str) -> MultiHeadAttention:
        sizes = {size: self.arguments[size] for size in ("num_heads", "key_dim", "value_dim")}
        bias = self.arguments["attention_bias"]
        return MultiHeadAttention(**sizes, use_bias=bias, name=name, dtype=self.dtype_policy)

    def add_and_norm(self, name: str) -> AddAndNorm:
        names = ("dropout", "norm_first", "norm_epsilon")
        options = {option: self.arguments[option] for option in names}
        return AddAndNorm(**options, name=name, dtype=self.dtype_policy)

    def feed_forward_network(self, name: str) -> FeedForward:
        own = {argument: self.arguments[argument] for argument in ("d_ff", "activation")}
        return FeedForward(**own, name=name, dtype=self.dtype_policy)

    def get_config(self):
        return super().get_config() | self.arguments


class Stack(TransformerLayer):
    """Dropout on the embedded input (paper 5.4), then N layers of `layer_class`.

    Args:
        num_layers: N.
        *args, **kwargs: those of `TransformerLayer`. With `norm_first` a last LayerNorm
            follows, since the residual path has none.
    """

    layer_class: type[TransformerLayer]

    def __init__(self, num_layers: int, *args, **kwargs):
        self.num_layers = num_layers
        super().__init__(*args, **kwargs)

    def add_sublayers(self):
        policy = self.dtype_policy
        dropout, norm_first = self.arguments["dropout"], self.arguments["norm_first"]
        self.dropout = Dropout(dropout, name="dropout", dtype=policy)
        self.layers = [
            self.layer_class(**self.arguments, name=f"layer_{i}", dtype=policy)
            for i in range(self.num_layers)
        ]
        self.norm = (
            LayerNormalization(
                epsilon=self.arguments["norm_epsilon"], name="norm", dtype=policy
            )
            if norm_first
            else None
        )

    def build_layers(self, *shapes):
        """Builds every layer for these input shapes, and the norm for the first of them."""
        for layer in self.layers:
            layer.build(*shapes)
        if self.norm:
            self.norm.build(shapes[0])

    def last_norm(self, x):
        return self.norm(x) if self.norm else x

    def get_config(self):
        return super().get_config() | {"num_layers": self.num_layers}
