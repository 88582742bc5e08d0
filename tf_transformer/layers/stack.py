"""Base classes of encoder and decoder: layers with one set of arguments, and their stacks."""

from collections.abc import Mapping
from typing import Any

import keras

from tf_transformer.fast.dropout import Dropout
from tf_transformer.fast.keras_hooks import sublayers
from tf_transformer.fast.recompute import current_programs, recomputed
from tf_transformer.layers.attention import MultiHeadAttention
from tf_transformer.layers.feed_forward import (
    AddAndNorm,
    FeedForward,
    activation_of,
    make_norm,
    require_positive,
    serialized,
)
from tf_transformer.layers.positions import POSITIONS

# Arguments of encoder and decoder layers, and of their stacks.
LAYER_ARGUMENTS = (
    "num_heads", "d_ff", "key_dim", "value_dim", "dropout", "attention_dropout",
    "activation_dropout", "activation", "norm_first", "norm_epsilon", "norm", "attention_bias",
    "query_key_gain", "value_gain", "positions", "attention_window",
)  # fmt: skip
# Their attributes, where a sublayer has the argument's name.
_ATTRIBUTES = {"dropout": "dropout_rate", "norm": "norm_kind"}


class TransformerLayer(keras.layers.Layer):
    """An encoder or decoder layer, or a stack of them."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def enable_lora(self, rank: int, **options) -> None:
        """Adapts the kernels of attention and feed-forward networks; freezes the norms.

        Arguments are those of `keras.layers.Dense.enable_lora`.
        """
        for layer in self._sublayers():
            if hasattr(layer, "enable_lora"):
                layer.enable_lora(rank, **options)
            else:
                layer.trainable = False

    def store(self, arguments: Mapping[str, Any]) -> None:
        """Stores those of `LAYER_ARGUMENTS` among a constructor's `locals()` as attributes."""
        for name in LAYER_ARGUMENTS:
            setattr(self, _ATTRIBUTES.get(name, name), arguments[name])
        self.activation = activation_of(arguments["activation"])

    def stored(self) -> dict[str, Any]:
        """Returns what `store` has stored, as arguments of another layer."""
        return {name: getattr(self, _ATTRIBUTES.get(name, name)) for name in LAYER_ARGUMENTS}

    def get_config(self):
        activation = {"activation": serialized(self.activation)}
        return super().get_config() | self.stored() | activation

    def make_attention(self, name: str, **options: Any) -> MultiHeadAttention:
        """Creates a multi-head attention of this name, with further options."""
        options |= {"name": name, "dtype": self.dtype_policy, "use_bias": self.attention_bias}
        options |= {"query_key_gain": self.query_key_gain, "value_gain": self.value_gain}
        sizes = self.num_heads, self.key_dim, self.value_dim
        return MultiHeadAttention(*sizes, dropout=self.attention_dropout, **options)

    def make_self_attention(self) -> MultiHeadAttention:
        """Creates the self-attention, which positions and a window act in."""
        options = {"positions": self.positions, "attention_window": self.attention_window}
        return self.make_attention("self_attention", **options)

    def make_feed_forward(self) -> FeedForward:
        """Creates the feed-forward network."""
        arguments = self.d_ff, self.activation, self.activation_dropout
        return FeedForward(*arguments, name="feed_forward", dtype=self.dtype_policy)

    def make_add_and_norm(self, name: str) -> AddAndNorm:
        """Creates the residual connection of this name around a sublayer."""
        arguments = self.dropout_rate, self.norm_first, self.norm_epsilon, self.norm_kind
        return AddAndNorm(*arguments, name=name, dtype=self.dtype_policy)

    def transform(self, x, training):
        """Applies the feed-forward network with its residual connection: [B, T, D]."""
        add_norm = self.feed_forward_norm
        transformed = self.feed_forward(add_norm.before(x), training=training)
        return add_norm(x, transformed, training=training)

    def _sublayers(self) -> list[keras.layers.Layer]:
        return [value for value in vars(self).values() if isinstance(value, keras.layers.Layer)]

    def compute_output_shape(self, inputs_shape, *others):
        return inputs_shape

    @classmethod
    def from_config(cls, config):
        layer = super().from_config(config)
        if not layer.trainable:  # which Keras's constructor does not pass on
            for part in sublayers(layer, recursive=True):
                part.trainable = False
        return layer


class Stack(TransformerLayer):
    """Dropout on the embedded input (paper 5.4), then N layers.

    With `norm_first`, a final norm follows, since the residual path has none. With `recompute`,
    each layer is computed again in the backward pass: training stores only the layers' inputs.
    """

    @property
    def positions_in_attention(self) -> bool:
        """Tells whether the kind of positions acts in self-attention."""
        return POSITIONS[self.positions].in_attention

    def make_layers(self, layer_class: type[TransformerLayer], **options: Any) -> None:
        """Creates the dropout, the layers with these further arguments, and the final norm."""
        require_positive(num_layers=self.num_layers)
        policy = self.dtype_policy
        self.dropout = Dropout(self.dropout_rate, name="dropout", dtype=policy)
        self.layers = [
            layer_class(**self.stored(), **options, name=f"layer_{i}", dtype=policy)
            for i in range(self.num_layers)
        ]
        self.norm = None
        if self.norm_first:
            self.norm = make_norm(self.norm_kind, self.norm_epsilon, dtype=policy)

    def build_layers(self, *shapes):
        """Builds every layer for these input shapes, and the final norm for the first one."""
        for layer in self.layers:
            layer.build(*shapes)
        if self.norm:
            self.norm.build(shapes[0])

    def call_layers(self, x, *inputs, training, return_attention_scores, **options):
        """Applies the layers to x, each with the same other inputs.

        Returns the output; with `return_attention_scores`, also a list of each layer's scores.
        """
        options["training"] = training
        if training and not return_attention_scores and (programs := current_programs()):
            return programs.call_stack(self, x, inputs, options)
        x = self.dropout(x, training=training)
        if not return_attention_scores:
            for layer in self.layers:
                call = recomputed(layer) if self.recompute and training else layer
                x = call(x, *inputs, **options)
            return self.last_norm(x)
        scores = []
        for layer in self.layers:
            x, weights = layer(x, *inputs, return_attention_scores=True, **options)
            scores.append(weights)
        return self.last_norm(x), scores

    def last_norm(self, x):
        """Applies the final layer norm, if there is one."""
        return self.norm(x) if self.norm else x

    def compute_output_spec(self, *args, **kwargs):
        specs = [layer.compute_output_spec(*args, **kwargs) for layer in self.layers]
        if not kwargs.get("return_attention_scores"):
            return specs[-1]
        return specs[-1][0], [scores for _, scores in specs]

    def get_config(self):
        config = {"num_layers": self.num_layers, "recompute": self.recompute}
        return super().get_config() | config

    def _sublayers(self):
        return [*super()._sublayers(), *self.layers]
