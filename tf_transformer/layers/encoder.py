"""The encoder (paper 3.1, left half of Figure 1)."""

import keras

from tf_transformer.layers.feed_forward import AddAndNorm
from tf_transformer.layers.masking import combine_masks
from tf_transformer.layers.stack import Stack, TransformerLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class EncoderLayer(TransformerLayer):
    """Self-attention and feed-forward, each inside Add & Norm: [B, S, D] -> [B, S, D].

    Arguments are those of `TransformerLayer`.
    """

    def add_sublayers(self):
        """Creates the sublayers of Figure 1, left."""
        self.self_attention = self.attention("self_attention")
        self.self_attention_norm = self.make(AddAndNorm, "self_attention_norm")
        self.feed_forward = self.inner_network("feed_forward")
        self.feed_forward_norm = self.make(AddAndNorm, "feed_forward_norm")

    def build(self, inputs_shape):
        self.self_attention.build(inputs_shape)
        self.self_attention_norm.build(inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_norm.build(inputs_shape)

    def call(self, inputs, mask=None, training=None):
        return self.forward(inputs, mask, training)[0]

    def forward(self, inputs, mask=None, training=None):
        """Returns the outputs [B, S, D], and the attention weights [B, H, S, S]."""
        attention, add_norm = self.self_attention, self.self_attention_norm
        heads = attention.project_self(add_norm.before(inputs))
        attended, weights = attention.attend(*heads, combine_masks(mask), training)
        x = add_norm(inputs, attended, training=training)
        add_norm = self.feed_forward_norm
        transformed = self.feed_forward(add_norm.before(x), training=training)
        x = add_norm(x, transformed, training=training)
        return x, weights

    def compute_output_shape(self, inputs_shape):
        return inputs_shape


@keras.saving.register_keras_serializable(package="tf_transformer")
class Encoder(Stack):
    """N encoder layers: [B, S, D] -> [B, S, D]. Arguments are those of `Stack`."""

    layer_class = EncoderLayer

    def build(self, inputs_shape):
        self.build_layers(inputs_shape)

    def call(self, inputs, mask=None, training=None):
        x = self.dropout(inputs, training=training)
        for layer in self.layers:
            x = layer(x, mask=mask, training=training)
        return self.last_norm(x)

    def attention_weights(self, inputs, mask=None):
        """Returns the weights [B, H, S, S] of every layer in a pass without dropout."""
        x, weights = inputs, []
        for layer in self.layers:
            x, layer_weights = layer.forward(x, mask, training=False)
            weights.append(layer_weights)
        return weights

    def compute_output_shape(self, inputs_shape):
        return inputs_shape
