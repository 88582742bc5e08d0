"""The decoder (paper 3.1, right half of Figure 1), for training and step by step.

Training and cached decoding run the same code, `DecoderLayer._forward`: a step is a forward
pass whose "target positions" are the W beams of a sentence, with a mask that lets each beam
see its own history among the cached keys.
"""

import keras
from keras import ops

from tf_transformer.layers.attention import MultiHeadAttention
from tf_transformer.layers.feed_forward import AddAndNorm, FeedForward
from tf_transformer.layers.masking import causal_mask, combine_masks
from tf_transformer.layers.stack import Stack


@keras.saving.register_keras_serializable(package="tf_transformer")
class DecoderLayer(keras.layers.Layer):
    """Causal self-attention, attention to the encoder and feed-forward, each in Add & Norm.

    Args:
        num_heads: H.
        d_ff: inner width F of the feed-forward network.
        key_dim, value_dim: sizes per head; d_model / num_heads by default.
        dropout: rate on each sublayer's output.
        norm_first: pre-LN instead of the paper's post-LN.

    Call arguments:
        target: [B, T, D].
        encoder_output: [B, S, D].
        target_mask, encoder_output_mask: boolean [B, T] and [B, S], True at real positions.

    Returns:
        [B, T, D].
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
        heads = {"num_heads": num_heads, "key_dim": key_dim, "value_dim": value_dim}
        residual = {"dropout": dropout, "norm_first": norm_first, "dtype": policy}
        self.self_attention = MultiHeadAttention(**heads, name="self_attention", dtype=policy)
        self.self_attention_norm = AddAndNorm(**residual, name="self_attention_norm")
        self.cross_attention = MultiHeadAttention(**heads, name="cross_attention", dtype=policy)
        self.cross_attention_norm = AddAndNorm(**residual, name="cross_attention_norm")
        self.feed_forward = FeedForward(d_ff, name="feed_forward", dtype=policy)
        self.feed_forward_norm = AddAndNorm(**residual, name="feed_forward_norm")
        self.supports_masking = True

    def build(self, target_shape, encoder_output_shape):
        self.self_attention.build(target_shape)
        self.self_attention_norm.build(target_shape)
        self.cross_attention.build(target_shape, encoder_output_shape)
        self.cross_attention_norm.build(target_shape)
        self.feed_forward.build(target_shape)
        self.feed_forward_norm.build(target_shape)

    def call(
        self,
        target,
        encoder_output,
        target_mask=None,
        encoder_output_mask=None,
        training=None,
    ):
        outputs, _ = self._forward(
            target,
            memory=self.cross_attention.project_memory(encoder_output),
            self_mask=combine_masks(target_mask, causal_mask(ops.shape(target)[1])),
            memory_mask=combine_masks(encoder_output_mask),
            training=training,
        )
        return outputs

    def step(self, beams, past, memory, self_mask, memory_mask):
        """One position for every beam, reading the cached keys and values of earlier ones.

        Args:
            beams: [B, W, D], the inputs of this position.
            past: keys and values of earlier positions, [B, H, t * W, K] each.
            memory: `cross_attention.project_memory(encoder_output)`.
            self_mask: boolean [B, 1, W, (t + 1) * W], True at a beam's own history.
            memory_mask: boolean [B, 1, 1, S].

        Returns:
            Outputs [B, W, D], and `past` with this position's W rows appended.
        """
        return self._forward(beams, memory, self_mask, memory_mask, past=past)

    def _forward(self, x, memory, self_mask, memory_mask, past=None, training=False):
        add_norm = self.self_attention_norm
        query, key, value = self._project_self(add_norm.before(x), past)
        attended = self.self_attention.attend(query, key, value, self_mask)
        x = add_norm(x, attended, training=training)

        add_norm = self.cross_attention_norm
        query = self.cross_attention.project_query(add_norm.before(x))
        attended = self.cross_attention.attend(query, *memory, mask=memory_mask)
        x = add_norm(x, attended, training=training)

        add_norm = self.feed_forward_norm
        x = add_norm(x, self.feed_forward(add_norm.before(x)), training=training)
        return x, (key, value)

    def _project_self(self, x, past):
        attention = self.self_attention
        if past is None:
            return attention.project_self(x)
        # One product would copy the three kernels together at every step.
        key, value = attention.project_memory(x)
        key = ops.concatenate([past[0], key], axis=2)
        value = ops.concatenate([past[1], value], axis=2)
        return attention.project_query(x), key, value

    def compute_output_shape(self, target_shape, encoder_output_shape):
        return target_shape

    def get_config(self):
        return super().get_config() | self.arguments


@keras.saving.register_keras_serializable(package="tf_transformer")
class Decoder(Stack):
    """N decoder layers. Arguments are those of `Stack`, call arguments of `DecoderLayer`."""

    layer_class = DecoderLayer

    def build(self, target_shape, encoder_output_shape):
        self.build_layers(target_shape, encoder_output_shape)

    def call(
        self,
        target,
        encoder_output,
        target_mask=None,
        encoder_output_mask=None,
        training=None,
    ):
        x = self.dropout(target, training=training)
        for layer in self.layers:
            x = layer(
                x,
                encoder_output,
                target_mask=target_mask,
                encoder_output_mask=encoder_output_mask,
                training=training,
            )
        return self.last_norm(x)

    def step(self, beams, past, memory, self_mask, memory_mask):
        """`DecoderLayer.step` through all layers; `past` and `memory`: one entry a layer."""
        new_past = []
        for layer, layer_past, layer_memory in zip(self.layers, past, memory, strict=True):
            beams, extended = layer.step(
                beams, layer_past, layer_memory, self_mask, memory_mask
            )
            new_past.append(extended)
        return self.last_norm(beams), new_past

    def compute_output_shape(self, target_shape, encoder_output_shape):
        return target_shape
