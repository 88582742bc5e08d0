"""The encoder (paper 3.1, left half of Figure 1)."""

from collections.abc import Callable
from typing import Any

import keras

from tf_transformer.fast.keras_hooks import mask_of
from tf_transformer.layers.stack import Stack, TransformerLayer


@keras.saving.register_keras_serializable(package="tf_transformer")
class EncoderLayer(TransformerLayer):
    """Self-attention and feed-forward, each wrapped in Add & Norm: [B, S, D] -> [B, S, D].

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

    Example:
        >>> layer = EncoderLayer(num_heads=4, d_ff=128, dropout=0.1)
        >>> keras.ops.shape(layer(keras.random.normal((2, 5, 64))))
        (2, 5, 64)
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
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.store(locals())
        self.self_attention = self.make_self_attention()
        self.self_attention_norm = self.make_add_and_norm("self_attention_norm")
        self.feed_forward = self.make_feed_forward()
        self.feed_forward_norm = self.make_add_and_norm("feed_forward_norm")

    def build(self, inputs_shape):
        for layer in self._sublayers():
            layer.build(inputs_shape)

    def call(
        self, inputs, mask=None, attention_mask=None, training=None, use_causal_mask=False,
        return_attention_scores=False,
    ):  # fmt: skip
        # Keras fills in `mask` only if the call has no second tensor.
        mask = mask_of(inputs) if mask is None else mask
        attention, add_norm = self.self_attention, self.self_attention_norm
        heads = attention.project_self(add_norm.before(inputs))
        attended, weights = attention.attend_to_self(
            *heads, mask, attention_mask, use_causal_mask, training, return_attention_scores
        )
        x = add_norm(inputs, attended, training=training)
        x = self.transform(x, training)
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
        recompute: recomputes each layer in the backward pass, so that training stores only the
            layers' inputs. May be changed later, as an attribute.
        **kwargs: name, dtype and other arguments of any Keras layer.

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
        recompute: bool = False,
        **kwargs: Any,
    ):
        super().__init__(**kwargs)
        self.num_layers = num_layers
        self.store(locals())
        self.recompute = recompute
        self.make_layers(EncoderLayer)

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
