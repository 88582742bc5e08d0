"""The encoder (paper 3.1, left half of Figure 1)."""

from typing import Any

import keras
from keras import ops

from tf_transformer.fast.tensors import mask_of
from tf_transformer.layers.masking import causal_mask, combine_masks
from tf_transformer.layers.stack import Stack, TransformerLayer, with_options


@keras.saving.register_keras_serializable(package="tf_transformer")
class EncoderLayer(TransformerLayer):
    """Self-attention and feed-forward, each wrapped in Add & Norm: [B, S, D] -> [B, S, D].

    Args:
        {arguments}
        **kwargs: name, dtype and other arguments of any Keras layer.

    Call arguments:
        inputs: [B, S, D].
        mask: boolean [B, S], True at real positions; the mask of `inputs` if None.
        attention_mask: boolean [B or 1, S, S], True where attention is allowed.
        use_causal_mask: hides later positions.
        return_attention_scores: also returns the attention weights.

    Returns:
        [B, S, D]; with `return_attention_scores`, a pair of that output and the weights
        [B, H, S, S].
    """

    @with_options
    def __init__(self, num_heads: int, d_ff: int, **options: Any):
        super().__init__(num_heads, d_ff, **options)
        self.self_attention = self.make_attention("self_attention")
        self.self_attention_norm = self.make_norm("self_attention_norm")
        self.feed_forward = self.make_feed_forward("feed_forward")
        self.feed_forward_norm = self.make_norm("feed_forward_norm")

    def build(self, inputs_shape):
        self.self_attention.build(inputs_shape)
        self.self_attention_norm.build(inputs_shape)
        self.feed_forward.build(inputs_shape)
        self.feed_forward_norm.build(inputs_shape)

    def call(
        self, inputs, mask=None, attention_mask=None, training=None, use_causal_mask=False,
        return_attention_scores=False,
    ):  # fmt: skip
        # Keras fills in `mask` only if the call has no second tensor.
        masks = [mask_of(inputs) if mask is None else mask, attention_mask]
        if use_causal_mask:
            masks.append(causal_mask(ops.shape(inputs)[1]))
        attention, add_norm = self.self_attention, self.self_attention_norm
        heads = attention.project_self(add_norm.before(inputs))
        attended, weights = attention.attend(*heads, combine_masks(*masks), training)
        x = add_norm(inputs, attended, training=training)
        add_norm = self.feed_forward_norm
        transformed = self.feed_forward(add_norm.before(x), training=training)
        x = add_norm(x, transformed, training=training)
        return (x, weights) if return_attention_scores else x

    def compute_output_spec(self, inputs, *args, return_attention_scores=False, **kwargs):
        outputs = keras.KerasTensor(inputs.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        return outputs, self.self_attention.scores_spec(inputs, inputs)


@keras.saving.register_keras_serializable(package="tf_transformer")
class Encoder(Stack):
    """N encoder layers, followed by a layer norm if `norm_first`: [B, S, D] -> [B, S, D].

    Args:
        num_layers: number of layers N.
        {arguments}
        **kwargs: name, dtype and other arguments of any Keras layer.

    Call arguments are those of `EncoderLayer`; the scores are a list with one entry per layer.
    """

    @with_options
    def __init__(self, num_layers: int, num_heads: int, d_ff: int, **options: Any):
        super().__init__(EncoderLayer, num_layers, num_heads, d_ff, **options)

    def build(self, inputs_shape):
        self.build_layers(inputs_shape)

    def call(
        self, inputs, mask=None, attention_mask=None, training=None, use_causal_mask=False,
        return_attention_scores=False,
    ):  # fmt: skip
        return self.call_layers(
            inputs,
            mask=mask_of(inputs) if mask is None else mask,
            attention_mask=attention_mask,
            training=training,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )
