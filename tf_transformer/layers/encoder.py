"""The encoder (paper 3.1, left half of Figure 1)."""

import keras

from tf_transformer.layers.attention import MultiHeadAttention
from tf_transformer.layers.feed_forward import AddAndNorm, FeedForward
from tf_transformer.layers.stack import Stack


@keras.saving.register_keras_serializable(package="tf_transformer")
class EncoderLayer(keras.layers.Layer):
    """Self-attention and feed-forward, each inside Add & Norm: [B, S, D] -> [B, S, D].

    Args:
        num_heads: H.
        d_ff: inner width F of the feed-forward network.
        key_dim, value_dim: sizes per head; d_model / num_heads by default.
        dropout: rate on each sublayer's output.
        norm_first: pre-LN instead of the paper's post-LN.
    """

    def __init__(
        self,
        num_heads: int,
        d_ff: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        norm_first: bool = False,
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
        }
        policy = self.dtype_policy
        self.self_attention = MultiHeadAttention(
            num_heads, key_dim, value_dim, name="self_attention", dtype=policy
        )
        self.self_attention_norm = AddAndNorm(
            dropout, norm_first, name="self_attention_norm", dtype=policy
        )
        self.feed_forward = FeedForward(d_ff, name="feed_forward", dtype=policy)
        self.feed_forward_norm = AddAndNorm(
            dropout, norm_first, name="feed_forward_norm", dtype=policy
        )
        self.supports_masking = True

    def build(self, inputs_shape):
        self.self_attention.build(inputs_shape)
        self.self_attention_norm.build(inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_norm.build(inputs_shape)

    def call(self, inputs, mask=None, training=None):
        add_norm = self.self_attention_norm
        attended = self.self_attention(add_norm.before(inputs), query_mask=mask)
        x = add_norm(inputs, attended, training=training)
        add_norm = self.feed_forward_norm
        return add_norm(x, self.feed_forward(add_norm.before(x)), training=training)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape

    def get_config(self):
        return super().get_config() | self.arguments


@keras.saving.register_keras_serializable(package="tf_transformer")
class Encoder(Stack):
    """N encoder layers: [B, S, D] -> [B, S, D]. Arguments: those of `Stack`."""

    layer_class = EncoderLayer

    def build(self, inputs_shape):
        self.build_layers(inputs_shape)

    def call(self, inputs, mask=None, training=None):
        x = self.dropout(inputs, training=training)
        for layer in self.layers:
            x = layer(x, mask=mask, training=training)
        return self.last_norm(x)

    def compute_output_shape(self, inputs_shape):
        return inputs_shape
