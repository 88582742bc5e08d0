"""The decoder (paper 3.1, right half of Figure 1), for training and step by step.

Training and cached decoding run the same code, `DecoderLayer._forward`: a step is a forward
pass whose "target positions" are the W beams of a sentence, with a mask that restricts each
beam to its history among the cached keys.
"""

import keras
from keras import ops

from tf_transformer.layers.feed_forward import AddAndNorm
from tf_transformer.layers.masking import causal_mask, combine_masks
from tf_transformer.layers.stack import Stack, TransformerLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class DecoderLayer(TransformerLayer):
    """Causal self-attention, attention to the encoder and feed-forward, each in Add & Norm.

    Arguments are those of `TransformerLayer`.

    Call arguments:
        target: [B, T, D].
        encoder_output: [B, S, D].
        target_mask, encoder_output_mask: boolean [B, T] and [B, S], True at real positions.

    Returns:
        [B, T, D].
    """

    def add_sublayers(self):
        """Creates the sublayers of Figure 1, right."""
        self.self_attention = self.attention("self_attention")
        self.self_attention_norm = self.make(AddAndNorm, "self_attention_norm")
        self.cross_attention = self.attention("cross_attention")
        self.cross_attention_norm = self.make(AddAndNorm, "cross_attention_norm")
        self.feed_forward = self.inner_network("feed_forward")
        self.feed_forward_norm = self.make(AddAndNorm, "feed_forward_norm")

    def build(self, target_shape, encoder_output_shape):
        self.self_attention.build(target_shape)
        self.self_attention_norm.build(target_shape)
        self.cross_attention.build(target_shape, encoder_output_shape)
        self.cross_attention_norm.build(target_shape)
        self.feed_forward.build(target_shape)
        self.feed_forward_norm.build(target_shape)

    def call(
        self, target, encoder_output, target_mask=None, encoder_output_mask=None, training=None
    ):
        masks = target_mask, encoder_output_mask
        return self.forward(target, encoder_output, *masks, training=training)[0]

    def forward(
        self, target, encoder_output, target_mask=None, encoder_output_mask=None, training=None
    ):
        """Returns the outputs [B, T, D], and the attention weights of the same pass.

        The weights are a pair: self-attention's [B, H, T, T], cross-attention's [B, H, T, S].
        """
        outputs, _, weights = self._forward(
            target,
            memory=self.cross_attention.project_memory(encoder_output),
            self_mask=combine_masks(target_mask, causal_mask(ops.shape(target)[1])),
            memory_mask=combine_masks(encoder_output_mask),
            training=training,
        )
        return outputs, weights

    def step(self, beams, past, memory, self_mask, memory_mask, fused=None):
        """Computes one position of every beam from the cached keys and values of earlier ones.

        Args:
            beams: [B, W, D], the inputs of this position.
            past: keys and values of earlier positions, [B, H, t * W, K] each.
            memory: `cross_attention.project_memory(encoder_output)`.
            self_mask: boolean [B, 1, W, (t + 1) * W], True at a beam's own history.
            memory_mask: boolean [B, 1, 1, S].
            fused: `self_attention.fused_projection()`, if computed before.

        Returns:
            Outputs [B, W, D], and `past` with this position's W rows appended.
        """
        outputs, past, _ = self._forward(beams, memory, self_mask, memory_mask, past, fused)
        return outputs, past

    def _forward(
        self, x, memory, self_mask, memory_mask, past=None, fused=None, training=False
    ):
        add_norm = self.self_attention_norm
        query, key, value = self.self_attention.project_self(add_norm.before(x), fused)
        if past is not None:
            key = ops.concatenate([past[0], key], axis=2)
            value = ops.concatenate([past[1], value], axis=2)
        attended, self_weights = self.self_attention.attend(
            query, key, value, self_mask, training
        )
        x = add_norm(x, attended, training=training)

        add_norm = self.cross_attention_norm
        query = self.cross_attention.project_query(add_norm.before(x))
        attended, weights = self.cross_attention.attend(
            query, *memory, mask=memory_mask, training=training
        )
        x = add_norm(x, attended, training=training)

        add_norm = self.feed_forward_norm
        transformed = self.feed_forward(add_norm.before(x), training=training)
        x = add_norm(x, transformed, training=training)
        return x, (key, value), (self_weights, weights)

    def compute_output_shape(self, target_shape, encoder_output_shape):
        return target_shape


@keras.saving.register_keras_serializable(package="tf_transformer")
class Decoder(Stack):
    """N decoder layers. Arguments are those of `Stack`, call arguments of `DecoderLayer`."""

    layer_class = DecoderLayer

    def build(self, target_shape, encoder_output_shape):
        self.build_layers(target_shape, encoder_output_shape)

    def call(
        self, target, encoder_output, target_mask=None, encoder_output_mask=None, training=None
    ):
        x = self.dropout(target, training=training)
        masks = {"target_mask": target_mask, "encoder_output_mask": encoder_output_mask}
        for layer in self.layers:
            x = layer(x, encoder_output, **masks, training=training)
        return self.last_norm(x)

    def attention_weights(
        self, target, encoder_output, target_mask=None, encoder_output_mask=None
    ):
        """Yields `DecoderLayer.forward`'s pair of weights layer by layer, without dropout.

        A caller that needs an early layer's weights stops before the last are computed.
        """
        masks = target_mask, encoder_output_mask
        x = target
        for layer in self.layers:
            x, weights = layer.forward(x, encoder_output, *masks, training=False)
            yield weights

    def fused_projections(self):
        """Returns every layer's `MultiHeadAttention.fused_projection`, for many steps."""
        return [layer.self_attention.fused_projection() for layer in self.layers]

    def step(self, beams, past, memory, self_mask, memory_mask, fused):
        """`DecoderLayer.step` through all layers; `past`, `memory`, `fused`: one entry each."""
        extended = []
        for layer, *state in zip(self.layers, past, memory, fused, strict=True):
            layer_past, layer_memory, layer_fused = state
            beams, layer_past = layer.step(
                beams, layer_past, layer_memory, self_mask, memory_mask, layer_fused
            )
            extended.append(layer_past)
        return self.last_norm(beams), extended

    def compute_output_shape(self, target_shape, encoder_output_shape):
        return target_shape
