"""The decoder (paper 3.1, right half of Figure 1), for training and step-by-step decoding.

Both run the same code, `DecoderLayer._forward`: a decoding step is a forward pass whose "target
positions" are the W beams of a sentence, with a mask that restricts each beam to its history
among the cached keys.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import keras
from keras import ops

from tf_transformer.fast.keras_hooks import mask_of
from tf_transformer.layers.attention import combine_masks
from tf_transformer.layers.stack import Stack, TransformerLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class DecoderLayer(TransformerLayer):
    """Causal self-attention, cross-attention and feed-forward, each wrapped in Add & Norm.

    Args:
        num_heads: number of heads H.
        d_ff: inner width F of the feed-forward network.
        key_dim: size per head of queries and keys; D / H if None.
        value_dim: size per head of values; D / H if None.
        dropout: dropout rate of the output of each sublayer.
        attention_dropout: dropout rate of the attention weights; the paper has none there.
        activation_dropout: dropout rate inside the feed-forward network; the paper has none
            there.
        activation: the feed-forward network's: "swiglu", "geglu", a Keras activation's name,
            or a function.
        norm_first: pre-LN; False is post-LN, as in the paper.
        norm_epsilon: added to the variance in each norm.
        norm: "layer", as in the paper, or "rms".
        attention_bias: adds biases to the attention projections; the paper has none.
        query_key_gain: factor on the initial kernels of queries and keys.
        value_gain: factor on the initial kernels of values.
        positions: name of a kind of `layers.positions`; "relative" and "rotary" act in
            self-attention, others in the embedding only.
        attention_window: how many positions to each side self-attention sees; 0 for all.
        cross_attention: attends to an encoder; False omits that sublayer, for a language model.
        **kwargs: name, dtype and other arguments of any Keras layer.

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
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        activation: str | Callable = "relu",
        norm_first: bool = False,
        norm_epsilon: float = 1e-6,
        norm: str = "layer",
        attention_bias: bool = False,
        query_key_gain: float = 1.0,
        value_gain: float = 1.0,
        positions: str = "sinusoidal",
        attention_window: int = 0,
        cross_attention: bool = True,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.store(locals())
        self.self_attention = self.make_self_attention()
        self.self_attention_norm = self.make_add_and_norm("self_attention_norm")
        self.cross_attention = None
        if cross_attention:
            self.cross_attention = self.make_attention("cross_attention")
            self.cross_attention_norm = self.make_add_and_norm("cross_attention_norm")
        self.feed_forward = self.make_feed_forward()
        self.feed_forward_norm = self.make_add_and_norm("feed_forward_norm")

    def build(self, target_shape, encoder_output_shape=None):
        self._require_memory(encoder_output_shape)
        self.self_attention.build(target_shape)
        self.self_attention_norm.build(target_shape)
        if self.cross_attention:
            self.cross_attention.build(target_shape, encoder_output_shape)
            self.cross_attention_norm.build(target_shape)
        self.feed_forward.build(target_shape)
        self.feed_forward_norm.build(target_shape)

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
        attend = partial(
            self.self_attention.attend_to_self,
            key_mask=target_mask,
            attention_mask=attention_mask,
            causal=use_causal_mask,
            with_weights=return_attention_scores,
        )
        outputs, _, weights = self._forward(
            target,
            attend,
            memory=self.project_memory(encoder_output),
            memory_mask=combine_masks(encoder_output_mask),
            training=training,
        )
        return (outputs, weights) if return_attention_scores else outputs

    def project_memory(self, encoder_output):
        """Returns keys and values of the encoder output; None without cross-attention."""
        return self.cross_attention and self.cross_attention.project_memory(encoder_output)

    def step(
        self, beams, past, memory, self_mask, memory_mask, fused=None, positions=None,
        column=None,
    ):  # fmt: skip
        """Computes one position of every beam from the cached keys and values of earlier ones.

        Args:
            beams: [B, W, D], the inputs of this position.
            past: keys and values of earlier positions, both [B, H, t * W, K], or None.
            memory: `project_memory(encoder_output)`.
            self_mask: [B, 1, W, (t + 1) * W], `additive` of True at a beam's own history.
            memory_mask: [B, 1, 1, S], likewise; ignored without cross-attention.
            fused: `self_attention.fused_projection()`, if already computed.
            positions: int [(t + 1) * W], those of the rows of keys and values; needed if
                positions act in attention.
            column: position whose W rows in a `past` of fixed size are replaced by this one's;
                None appends them.

        Returns:
            Outputs [B, W, D], and `past` with this position's W rows.
        """
        own = None if positions is None else positions[-1:]
        if own is not None and column is not None:
            own = ops.reshape(column, (1,))
        distances = None if positions is None else positions - own
        attend = partial(self.self_attention.attend, mask=self_mask, distances=distances)
        outputs, past, _ = self._forward(
            beams, attend, memory, memory_mask, past, fused, own, column=column
        )
        return outputs, past

    def _forward(
        self, x, attend, memory, memory_mask, past=None, fused=None, positions=None,
        training=False, column=None,
    ):  # fmt: skip
        add_norm, attention = self.self_attention_norm, self.self_attention
        query, key, value = attention.project_self(add_norm.before(x), fused, positions)
        if past is not None:
            key = _with_rows(past[0], key, column)
            value = _with_rows(past[1], value, column)
        attended, self_weights = attend(query, key, value, training=training)
        x = add_norm(x, attended, training=training)
        scores = (self_weights,)

        if self.cross_attention:
            add_norm = self.cross_attention_norm
            query = self.cross_attention.project_query(add_norm.before(x))
            attended, weights = self.cross_attention.attend(
                query, *memory, memory_mask, training
            )
            x = add_norm(x, attended, training=training)
            scores += (weights,)

        return self.transform(x, training), (key, value), scores

    def compute_output_spec(
        self, target, encoder_output=None, *args, return_attention_scores=False, **kwargs
    ):
        self._require_memory(encoder_output)
        outputs = keras.KerasTensor(target.shape, dtype=self.compute_dtype)
        if not return_attention_scores:
            return outputs
        keys = (target, encoder_output) if self.cross_attention else (target,)
        return outputs, tuple(self.self_attention.scores_spec(target, key) for key in keys)

    def get_config(self):
        return super().get_config() | {"cross_attention": bool(self.cross_attention)}


def _with_rows(past, new, column):
    """Puts rows [B, H, W, K] into a column of [B, H, C * W, K]; behind all if it is None."""
    if column is None:
        return ops.concatenate([past, new], axis=2)
    batch, heads, rows, size = ops.shape(past)
    width = new.shape[2]
    columns = ops.reshape(past, (batch, heads, rows // width, width, size))
    here = ops.equal(ops.arange(rows // width, dtype="int32"), column)[:, None, None]
    # Not an update in place, which would be a copy and another launch for each tensor.
    return ops.reshape(ops.where(here, new[:, :, None], columns), ops.shape(past))


@keras.saving.register_keras_serializable(package="tf_transformer")
class Decoder(Stack):
    """N decoder layers, followed by a layer norm if `norm_first`.

    Args:
        num_layers: number of layers N.
        num_heads: number of heads H.
        d_ff: inner width F of the feed-forward network.
        key_dim: size per head of queries and keys; D / H if None.
        value_dim: size per head of values; D / H if None.
        dropout: dropout rate of the embedded input and of the output of each sublayer.
        attention_dropout: dropout rate of the attention weights; the paper has none there.
        activation_dropout: dropout rate inside the feed-forward network; the paper has none
            there.
        activation: the feed-forward network's: "swiglu", "geglu", a Keras activation's name,
            or a function.
        norm_first: pre-LN; False is post-LN, as in the paper.
        norm_epsilon: added to the variance in each norm.
        norm: "layer", as in the paper, or "rms".
        attention_bias: adds biases to the attention projections; the paper has none.
        query_key_gain: factor on the initial kernels of queries and keys.
        value_gain: factor on the initial kernels of values.
        positions: name of a kind of `layers.positions`; "relative" and "rotary" act in
            self-attention, others in the embedding only.
        attention_window: how many positions to each side self-attention sees; 0 for all.
        cross_attention: attends to an encoder; False for a decoder-only model.
        recompute: recomputes each layer in the backward pass, so that training stores only the
            layers' inputs. May be changed later, as an attribute.
        **kwargs: name, dtype and other arguments of any Keras layer.

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
        key_dim: int | None = None,
        value_dim: int | None = None,
        dropout: float = 0.0,
        attention_dropout: float = 0.0,
        activation_dropout: float = 0.0,
        activation: str | Callable = "relu",
        norm_first: bool = False,
        norm_epsilon: float = 1e-6,
        norm: str = "layer",
        attention_bias: bool = False,
        query_key_gain: float = 1.0,
        value_gain: float = 1.0,
        positions: str = "sinusoidal",
        attention_window: int = 0,
        cross_attention: bool = True,
        recompute: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.store(locals())
        self.cross_attention = cross_attention
        self.recompute = recompute
        self.make_layers(DecoderLayer, cross_attention=cross_attention)

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
        self, beams, past, memory, self_mask, memory_mask, fused, positions=None, column=None
    ):
        """Runs `DecoderLayer.step` in every layer.

        `past`, `memory` and `fused` hold one entry per layer.
        """
        extended = []
        for layer, *state in zip(self.layers, past, memory, fused, strict=True):
            layer_past, layer_memory, layer_fused = state
            beams, layer_past = layer.step(
                beams, layer_past, layer_memory, self_mask, memory_mask, layer_fused,
                positions, column,
            )  # fmt: skip
            extended.append(layer_past)
        return self.last_norm(beams), extended

    def get_config(self):
        return super().get_config() | {"cross_attention": self.cross_attention}
