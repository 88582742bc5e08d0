"""The decoder (paper 3.1, right half of Figure 1), for training and step-by-step decoding.

Both run the same code, `Block.forward`: a decoding step is a forward pass whose "target
positions" are the W beams of a sentence, with a mask that restricts each beam to its history
among the cached keys.
"""

from functools import partial
from typing import Unpack

import keras
from keras import ops

from tf_transformer.fast.keras_hooks import mask_of
from tf_transformer.layers.attention import combine_masks
from tf_transformer.layers.block import Block, LayerArguments, Stack


@keras.saving.register_keras_serializable(package="tf_transformer")
class DecoderLayer(Block):
    """Causal self-attention, cross-attention and feed-forward, each wrapped in Add & Norm.

    Args:
        num_heads: H, attention heads per sublayer.
        d_ff: F, the inner width of the feed-forward network.
        cross_attention: attends to an encoder; False omits that sublayer, for a language model.
        **options: those of `BlockOptions`; name, dtype and others of any Keras layer.

    Call arguments:
        target: [B, T, D].
        encoder_output: [B, S, D], or None without `cross_attention`.
        target_mask: boolean [B, T], True at real positions; the mask of `target` if None.
        encoder_output_mask: boolean [B, S], likewise.
        attention_mask: boolean [B or 1, T, T], True where self-attention is allowed.
        use_causal_mask: hides later positions of the target.
        return_attention_scores: also returns the attention weights.

    Returns:
        [B, T, D]; with `return_attention_scores`, a pair of that output and a tuple of weights:
        self-attention [B, H, T, T] and, if present, cross-attention [B, H, T, S].

    Raises:
        ValueError: if `encoder_output` is missing, or given without `cross_attention`.

    Example:
        >>> target, source = keras.random.normal((2, 4, 64)), keras.random.normal((2, 5, 64))
        >>> keras.ops.shape(DecoderLayer(num_heads=4, d_ff=128)(target, source))
        (2, 4, 64)
    """

    def __init__(
        self,
        num_heads: int,
        d_ff: int,
        *,
        cross_attention: bool = True,
        **options: Unpack[LayerArguments],
    ):
        super().__init__(num_heads, d_ff, cross_attention, **options)

    def build(self, target_shape, encoder_output_shape=None):
        self._require_memory(encoder_output_shape)
        self.build_sublayers(target_shape, encoder_output_shape)

    def _require_memory(self, encoder_output):
        if (encoder_output is None) == bool(self.cross_attention):
            raise ValueError(
                "`encoder_output` must be given with `cross_attention`, and left out without. "
                f"Received: cross_attention={bool(self.cross_attention)}, "
                f"encoder_output={getattr(encoder_output, 'shape', encoder_output)}."
            )

    def call(
        self, target, encoder_output=None, target_mask=None, encoder_output_mask=None,
        attention_mask=None, training=None, use_causal_mask=True,
        return_attention_scores=False,
    ):  # fmt: skip
        self._require_memory(encoder_output)
        # Keras fills in `target_mask` only if the call has a second tensor.
        target_mask = mask_of(target) if target_mask is None else target_mask
        outputs, weights = self.forward_whole(
            target, target_mask, attention_mask, use_causal_mask, training,
            return_attention_scores,
            memory=self.project_memory(encoder_output),
            memory_mask=combine_masks(encoder_output_mask),  # [B, 1, 1, S]
        )  # fmt: skip
        return (outputs, weights) if return_attention_scores else outputs

    def project_memory(self, encoder_output):
        """Returns keys and values of the encoder output; None without cross-attention."""
        return self.cross_attention and self.cross_attention.project_memory(encoder_output)

    def compute_output_spec(
        self, target, encoder_output=None, *args, return_attention_scores=False, **kwargs
    ):
        self._require_memory(encoder_output)
        outputs, weights = self.specs(target, encoder_output)
        return (outputs, weights) if return_attention_scores else outputs

    def get_config(self):
        return super().get_config() | {"cross_attention": bool(self.cross_attention)}


@keras.saving.register_keras_serializable(package="tf_transformer")
class Decoder(Stack):
    """N decoder layers, followed by a layer norm if `norm_first`.

    Args:
        num_layers: number of layers N.
        num_heads: H, attention heads per sublayer.
        d_ff: F, the inner width of the feed-forward networks.
        cross_attention: attends to an encoder; False for a decoder-only model.
        recompute: recomputes each layer in the backward pass, so that training stores only the
            layers' inputs. May be changed later, as an attribute.
        **options: those of `BlockOptions`; name, dtype and others of any Keras layer.

    Call arguments are those of `DecoderLayer`; the scores are a list with one entry per layer.

    Example:
        >>> language_model = Decoder(2, num_heads=4, d_ff=128, cross_attention=False)
        >>> keras.ops.shape(language_model(keras.random.normal((2, 4, 64))))
        (2, 4, 64)
    """

    def __init__(
        self,
        num_layers: int,
        num_heads: int,
        d_ff: int,
        *,
        cross_attention: bool = True,
        recompute: bool = False,
        **options: Unpack[LayerArguments],
    ):
        layer = partial(DecoderLayer, cross_attention=cross_attention)
        super().__init__(layer, num_layers, num_heads, d_ff, recompute, **options)
        self.cross_attention = cross_attention

    def build(self, target_shape, encoder_output_shape=None):
        self.build_layers(target_shape, encoder_output_shape)

    def call(
        self, target, encoder_output=None, target_mask=None, encoder_output_mask=None,
        attention_mask=None, training=None, use_causal_mask=True,
        return_attention_scores=False,
    ):  # fmt: skip
        return self.call_layers(
            target,
            encoder_output,
            target_mask=mask_of(target) if target_mask is None else target_mask,
            encoder_output_mask=encoder_output_mask,
            attention_mask=attention_mask,
            training=training,
            use_causal_mask=use_causal_mask,
            return_attention_scores=return_attention_scores,
        )

    def fused_projections(self):
        """Returns `MultiHeadAttention.fused_projection()` of every layer, for all steps."""
        return [layer.self_attention.fused_projection() for layer in self.layers]

    def step(
        self, beams, past, memory, self_mask, memory_mask, fused, extended, index,
        positions=None,
    ):  # fmt: skip
        """Computes one position of every beam from the cached keys and values of earlier ones.

        Args:
            beams: [B, W, D], the inputs of this position.
            past: keys and values of earlier positions in each layer, both [B, H, t * W, K].
            memory: `project_memory(encoder_output)` of each layer.
            self_mask: [B, 1, W, (t + 1) * W], `additive` of True at a beam's own history.
            memory_mask: [B, 1, 1, S], likewise; ignored without cross-attention.
            fused: `fused_projections()`, computed once for all steps.
            extended: takes a layer's `past`, and keys and values of this position [B, H, W, K];
                returns both as one: a method of a kind of cache, see `models.cached_decoding`.
            index: this position, which all beams are at.
            positions: int [(t + 1) * W], those of the rows of keys and values; needed if
                positions act in attention.

        Returns:
            Outputs [B, W, D], and `past` with this position's W rows.
        """
        own = distances = None
        if positions is not None:
            own = ops.reshape(ops.cast(index, "int32"), (1,))
            distances = positions - own  # [(t + 1) * W]
        extended_past = []
        for layer, *state in zip(self.layers, past, memory, fused, strict=True):
            layer_past, layer_memory, kernel = state
            attend = partial(layer.self_attention.attend, mask=self_mask, distances=distances)
            with_past = partial(extended, layer_past)
            beams, layer_past, _ = layer.forward(
                beams, attend, layer_memory, memory_mask, with_past, kernel, own
            )
            extended_past.append(layer_past)
        return self.last_norm(beams), extended_past

    def get_config(self):
        return super().get_config() | {"cross_attention": self.cross_attention}
