"""Base classes of encoder and decoder: layers with one set of arguments, and their stacks."""

from typing import Any

import keras

from tf_transformer.fast.dropout import Dropout
from tf_transformer.fast.keras_hooks import sublayers
from tf_transformer.fast.recompute import recomputed
from tf_transformer.layers.feed_forward import make_norm, require_positive, serialized


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

    def shared_arguments(self) -> dict[str, Any]:
        """Returns the arguments of the constructor that layers and stacks have in common."""
        return {
            "num_heads": self.num_heads,
            "d_ff": self.d_ff,
            "key_dim": self.key_dim,
            "value_dim": self.value_dim,
            "dropout": self.rate,
            "attention_dropout": self.attention_dropout,
            "activation_dropout": self.activation_dropout,
            "activation": self.activation,
            "norm_first": self.norm_first,
            "norm_epsilon": self.norm_epsilon,
            "norm": self.norm_kind,
            "attention_bias": self.attention_bias,
            "query_key_gain": self.query_key_gain,
            "value_gain": self.value_gain,
            "positions": self.positions,
            "attention_window": self.attention_window,
        }

    def get_config(self):
        activation = {"activation": serialized(self.activation)}
        return super().get_config() | self.shared_arguments() | activation

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

    With `norm_first`, a final norm follows, since the residual path has none.

    Attributes:
        dropout: the dropout on the input.
        layers: the layers.
        norm: the final norm, or None.
        recompute: recomputes each layer in the backward pass, so that training stores only the
            layers' inputs.
    """

    def make_layers(self, layer_class: type[TransformerLayer], **options: Any) -> None:
        """Creates the dropout, the layers with these further arguments, and the final norm."""
        require_positive(num_layers=self.num_layers)
        policy = self.dtype_policy
        self.dropout = Dropout(self.rate, name="dropout", dtype=policy)
        options |= self.shared_arguments()
        self.layers = [
            layer_class(**options, name=f"layer_{i}", dtype=policy)
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

        Returns:
            The output; with `return_attention_scores`, a pair of it and a list of each layer's
            scores.
        """
        x, scores = self.dropout(x, training=training), []
        options |= {"training": training, "return_attention_scores": return_attention_scores}
        recompute = self.recompute and training and not return_attention_scores
        for layer in self.layers:
            x = (recomputed(layer) if recompute else layer)(x, *inputs, **options)
            if return_attention_scores:
                x, weights = x
                scores.append(weights)
        x = self.last_norm(x)
        return (x, scores) if return_attention_scores else x

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
