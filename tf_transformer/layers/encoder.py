"""The encoder (paper 3.1, left half of Figure 1)."""

from typing import Unpack

import keras

from tf_transformer.fast.keras_hooks import mask_of
from tf_transformer.layers.block import Block, LayerArguments, Stack


@keras.saving.register_keras_serializable(package="tf_transformer")
class EncoderLayer(Block):
    """Self-attention and feed-forward, each wrapped in Add & Norm: [B, S, D] -> [B, S, D].

    Args:
        num_heads: H, attention heads per sublayer.
        d_ff: F, the inner width of the feed-forward network.
        **options: those of `BlockOptions`; name, dtype and others of any Keras layer.

    Call arguments:
        inputs: [B, S, D].
        mask: boolean [B, S], True at real positions; the mask of `inputs` if None.
        attention_mask: boolean [B or 1, S, S], True where attention is allowed.
        use_causal_mask: hides later positions.
        return_attention_scores: also returns the attention weights.

    Returns:
        [B, S, D]; with `return_attention_scores`, a pair of that output and the weights
        [B, H, S, S].

    Example:
        >>> layer = EncoderLayer(num_heads=4, d_ff=128, dropout=0.1)
        >>> keras.ops.shape(layer(keras.random.normal((2, 5, 64))))
        (2, 5, 64)
    """

    def __init__(self, num_heads: int, d_ff: int, **options: Unpack[LayerArguments]):
        super().__init__(num_heads, d_ff, cross_attention=False, **options)

    def build(self, inputs_shape):
        self.build_sublayers(inputs_shape)

    def call(
        self, inputs, mask=None, attention_mask=None, training=None, use_causal_mask=False,
        return_attention_scores=False,
    ):  # fmt: skip
        # Keras fills in `mask` only if the call has no second tensor.
        mask = mask_of(inputs) if mask is None else mask
        outputs, (weights,) = self.forward_whole(
            inputs, mask, attention_mask, use_causal_mask, training, return_attention_scores
        )
        return (outputs, weights) if return_attention_scores else outputs

    def compute_output_spec(self, inputs, *args, return_attention_scores=False, **kwargs):
        outputs, (weights,) = self.specs(inputs)
        return (outputs, weights) if return_attention_scores else outputs


@keras.saving.register_keras_serializable(package="tf_transformer")
class Encoder(Stack):
    """N encoder layers, followed by a layer norm if `norm_first`: [B, S, D] -> [B, S, D].

    Args:
        num_layers: number of layers N.
        num_heads: H, attention heads per sublayer.
        d_ff: F, the inner width of the feed-forward networks.
        recompute: recomputes each layer in the backward pass, so that training stores only the
            layers' inputs. May be changed later, as an attribute.
        **options: those of `BlockOptions`; name, dtype and others of any Keras layer.

    Call arguments are those of `EncoderLayer`; the scores are a list with one entry per layer.

    Example:
        >>> encoder = Encoder(num_layers=2, num_heads=4, d_ff=128)
        >>> x = keras.random.normal((2, 5, 64))
        >>> outputs, scores = encoder(x, return_attention_scores=True)
        >>> [keras.ops.shape(weights) for weights in scores]
        [(2, 4, 5, 5), (2, 4, 5, 5)]
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        *,
        recompute: bool = False,
        **options: Unpack[LayerArguments],
    ):
        super().__init__(EncoderLayer, num_layers, num_heads, d_ff, recompute, **options)

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
