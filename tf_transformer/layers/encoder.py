"""The encoder (paper 3.1, left half of Figure 1), and what it shares with the decoder."""

from collections.abc import Callable
from typing import Any

import keras
from keras import ops

from tf_transformer.fast.keras_model import sublayers
from tf_transformer.fast.operations import Dropout, mask_of, recomputed
from tf_transformer.layers.attention import MultiHeadAttention
from tf_transformer.layers.feed_forward import (
    AddAndNorm,
    FeedForward,
    activation_of,
    make_norm,
    require_positive,
    serialized,
)

# --- Base classes ------------------------------------------------------------------------


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


# --- The encoder -------------------------------------------------------------------------


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
        positions: "relative" or "rotary" act in self-attention, others in the embedding only.
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
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.rate = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.activation = activation_of(activation)
        self.norm_first = norm_first
        self.norm_epsilon = norm_epsilon
        self.norm_kind = norm
        self.attention_bias = attention_bias
        self.query_key_gain = query_key_gain
        self.value_gain = value_gain
        self.positions = positions
        self.attention_window = attention_window
        policy = self.dtype_policy
        norms = {
            "dropout": dropout,
            "norm_first": norm_first,
            "norm_epsilon": norm_epsilon,
            "norm": norm,
            "dtype": policy,
        }
        self.self_attention = MultiHeadAttention(
            num_heads,
            key_dim,
            value_dim,
            use_bias=attention_bias,
            query_key_gain=query_key_gain,
            value_gain=value_gain,
            dropout=attention_dropout,
            positions=positions,
            attention_window=attention_window,
            name="self_attention",
            dtype=policy,
        )
        self.self_attention_norm = AddAndNorm(**norms, name="self_attention_norm")
        self.feed_forward = FeedForward(
            d_ff, activation, activation_dropout, name="feed_forward", dtype=policy
        )
        self.feed_forward_norm = AddAndNorm(**norms, name="feed_forward_norm")

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
        mask = mask_of(inputs) if mask is None else mask
        attention, add_norm = self.self_attention, self.self_attention_norm
        heads = attention.project_self(add_norm.before(inputs))
        attended, weights = attention.attend_to_self(
            *heads, mask, attention_mask, use_causal_mask, training, return_attention_scores
        )
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
        positions: "relative" or "rotary" act in self-attention, others in the embedding only.
        attention_window: how many positions to each side self-attention sees; 0 for all.
        recompute: recomputes each layer in the backward pass, so that training stores only the
            layers' inputs. May be changed later, as an attribute.
        **kwargs: name, dtype and other arguments of any Keras layer.

    Call arguments are those of `EncoderLayer`; the scores are a list with one entry per layer.
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
        self.num_heads = num_heads
        self.d_ff = d_ff
        self.key_dim = key_dim
        self.value_dim = value_dim
        self.rate = dropout
        self.attention_dropout = attention_dropout
        self.activation_dropout = activation_dropout
        self.activation = activation_of(activation)
        self.norm_first = norm_first
        self.norm_epsilon = norm_epsilon
        self.norm_kind = norm
        self.attention_bias = attention_bias
        self.query_key_gain = query_key_gain
        self.value_gain = value_gain
        self.positions = positions
        self.attention_window = attention_window
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


# --- Its output as one vector ------------------------------------------------------------


@keras.saving.register_keras_serializable(package="tf_transformer")
class MeanPooling(keras.layers.Layer):
    """Mean over unmasked positions: [B, S, D] -> float32 [B, D]; zeros if there are none.

    Computed in float32 whatever the policy: a bfloat16 sum over many positions loses small
    terms.
    """

    def __init__(self, **kwargs):
        super().__init__(**(kwargs | {"dtype": "float32"}))
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            return ops.mean(inputs, axis=1)
        weights = ops.cast(mask, "float32")[..., None]  # [B, S, 1]
        count = ops.maximum(ops.sum(weights, axis=1), 1.0)
        return ops.sum(inputs * weights, axis=1) / count

    def compute_mask(self, inputs, mask=None):
        return None

    def compute_output_shape(self, inputs_shape):
        return inputs_shape[0], inputs_shape[2]
