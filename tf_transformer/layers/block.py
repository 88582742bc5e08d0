"""The block of encoder and decoder (paper 3.1, Figure 1): its options, and stacks of it."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import keras

from tf_transformer.base.architecture import POSITION_KINDS
from tf_transformer.fast.dropout import Dropout
from tf_transformer.fast.keras_hooks import sublayers
from tf_transformer.fast.recompute import current_programs, recomputed
from tf_transformer.layers.attention import MultiHeadAttention
from tf_transformer.layers.feed_forward import (
    AddAndNorm,
    FeedForward,
    activation_of,
    make_norm,
    require_positive,
    serialized,
)

# --- Options -----------------------------------------------------------------------------


@dataclass(frozen=True)
class BlockOptions:
    """The options of `EncoderLayer`, `DecoderLayer`, `Encoder`, `Decoder` and `Transformer`.

    A setting of the same name, explained in the same words, gives each to the model of a run.

    Args:
        num_heads: H, attention heads per sublayer.
        d_ff: F, the inner width of the feed-forward networks.
        key_dim: K, the width of a head's queries and keys; d_model / num_heads if None.
        value_dim: width of a head's values; d_model / num_heads if None.
        dropout: rate on sublayer outputs and on embeddings plus positions.
        attention_dropout: rate on attention weights; the paper has none there.
        activation_dropout: rate after the activation of feed-forward networks; the paper has
            none there.
        activation: activation of the feed-forward networks: "swiglu" or "geglu", which gate a
            second inner projection of width F, any Keras activation's name, or a function.
        norm_first: pre-LN, with a final norm on both stacks, instead of the paper's post-LN.
        norm_epsilon: added to the variance in every norm.
        norm: kind of every norm: "layer" or "rms".
        attention_bias: biases in the projections of attention; the paper has none.
        query_key_gain: gain of the Xavier uniform initialisation of query and key kernels.
        value_gain: gain of the Xavier uniform initialisation of value kernels.
        positions: how the model knows the order of tokens: a kind of `layers.positions`. Some
            act in self-attention; others act in the embedding only, to which give the same.
        attention_window: positions to each side (back, in a decoder) that self-attention sees;
            0: all.

    Example:
        >>> BlockOptions(num_heads=4, d_ff=128).norm
        'layer'
    """

    num_heads: int
    d_ff: int
    key_dim: int | None = None
    value_dim: int | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: str | Callable = "relu"
    norm_first: bool = False
    norm_epsilon: float = 1e-6
    norm: str = "layer"
    attention_bias: bool = False
    query_key_gain: float = 1.0
    value_gain: float = 1.0
    positions: str = "sinusoidal"
    attention_window: int = 0


class BlockArguments(TypedDict, total=False):
    """The fields of `BlockOptions` that have a default, for editors and type checkers."""

    key_dim: int | None
    value_dim: int | None
    dropout: float
    attention_dropout: float
    activation_dropout: float
    activation: str | Callable
    norm_first: bool
    norm_epsilon: float
    norm: str
    attention_bias: bool
    query_key_gain: float
    value_gain: float
    positions: str
    attention_window: int


class LayerArguments(BlockArguments, total=False):
    """These, and arguments of any Keras layer."""

    name: str | None
    dtype: Any
    trainable: bool


class TransformerLayer(keras.layers.Layer):
    """An encoder or decoder layer, or a stack of them.

    Attributes:
        options: its `BlockOptions`.
    """

    def __init__(self, num_heads: int, d_ff: int, **arguments: Any):
        names = [field.name for field in dataclasses.fields(BlockOptions)]
        given = {name: arguments.pop(name) for name in names if name in arguments}
        super().__init__(**arguments)
        self.options = BlockOptions(num_heads, d_ff, **given)
        self.supports_masking = True

    def get_config(self):
        activation = {"activation": serialized(activation_of(self.options.activation))}
        return super().get_config() | vars(self.options) | activation

    @classmethod
    def from_config(cls, config):
        layer = super().from_config(config)
        if not layer.trainable:  # which Keras's constructor does not pass on
            for part in sublayers(layer, recursive=True):
                part.trainable = False
        return layer

    def enable_lora(self, rank: int, **options) -> None:
        """Adapts the kernels of attention and feed-forward networks; freezes the norms.

        Arguments are those of `keras.layers.Dense.enable_lora`.
        """
        for layer in sublayers(self):
            if hasattr(layer, "enable_lora"):
                layer.enable_lora(rank, **options)
            else:
                layer.trainable = False

    def compute_output_shape(self, inputs_shape, *others):
        return inputs_shape


# --- One layer ---------------------------------------------------------------------------


class Block(TransformerLayer):
    """Self-attention, cross-attention if wanted, and feed-forward, each wrapped in Add & Norm.

    `forward` is the only way through it: for an encoder, for a decoder, and for a step of
    decoding.
    """

    def __init__(self, num_heads: int, d_ff: int, cross_attention: bool, **arguments: Any):
        super().__init__(num_heads, d_ff, **arguments)
        options, policy = self.options, self.dtype_policy
        where = {"positions": options.positions, "attention_window": options.attention_window}
        self.self_attention = self._attention("self_attention", **where)
        self.self_attention_norm = self._add_and_norm("self_attention_norm")
        self.cross_attention = None
        if cross_attention:
            self.cross_attention = self._attention("cross_attention")
            self.cross_attention_norm = self._add_and_norm("cross_attention_norm")
        inner = options.d_ff, options.activation, options.activation_dropout
        self.feed_forward = FeedForward(*inner, name="feed_forward", dtype=policy)
        self.feed_forward_norm = self._add_and_norm("feed_forward_norm")

    def _attention(self, name: str, **options: Any) -> MultiHeadAttention:
        common = self.options
        return MultiHeadAttention(
            common.num_heads, common.key_dim, common.value_dim, common.attention_bias,
            common.query_key_gain, common.value_gain, common.attention_dropout, **options,
            name=name, dtype=self.dtype_policy,
        )  # fmt: skip

    def _add_and_norm(self, name: str) -> AddAndNorm:
        options = self.options
        arguments = options.dropout, options.norm_first, options.norm_epsilon, options.norm
        return AddAndNorm(*arguments, name=name, dtype=self.dtype_policy)

    def build_sublayers(self, shape, memory_shape=None) -> None:
        """Builds the sublayers for inputs [B, T, D] and, if any, memory [B, S, D]."""
        for layer in sublayers(self):
            memory = (memory_shape,) if layer is self.cross_attention else ()
            layer.build(shape, *memory)

    def forward_whole(
        self, x, mask, attention_mask, causal, training, with_weights, memory=None,
        memory_mask=None,
    ):  # fmt: skip
        """Runs `forward` on whole sequences [B, T, D], without a cache.

        `mask` is [B, T], `attention_mask` [B or 1, T, T]. Returns outputs [B, T, D] and the
        weights of each attention; those within a window are None, unless they are asked for.
        """
        attend = partial(
            self.self_attention.attend_to_self,
            key_mask=mask,
            attention_mask=attention_mask,
            causal=causal,
            with_weights=with_weights,
        )
        x, _, weights = self.forward(x, attend, memory, memory_mask, training=training)
        return x, weights

    def forward(
        self, x, attend, memory=None, memory_mask=None, with_past=None, fused=None,
        positions=None, training=False,
    ):  # fmt: skip
        """Computes the sublayers in turn.

        Args:
            x: [B, T, D], T target positions; in decoding [B, W, D], W beams at one position.
            attend: applies self-attention, a method of it with masks: takes queries, keys,
                values and `training`, returns outputs [B, T, D] and weights [B, H, T, S].
            memory: keys and values of the encoder output, [B, H, S, K].
            memory_mask: which of them may be attended to, broadcastable to [B, H, T, S].
            with_past: takes keys and values of x, a pair, and returns it with those of earlier
                positions, if there are any.
            fused: the kernel of self-attention's projections, if already computed.
            positions: those of x, [T]; 0, 1, ... if None.
            training: whether to drop out.

        Returns:
            [B, T, D], the keys and values that self-attention attended to, and a tuple of the
            weights of self-attention and, if there is one, cross-attention.
        """
        # Self-attention: x [B, T, D] -> heads [B, H, T, K] -> [B, T, D].
        add_norm, attention = self.self_attention_norm, self.self_attention
        query, key, value = attention.project_self(add_norm.before(x), fused, positions)
        if with_past:
            key, value = with_past((key, value))
        attended, weights = attend(query, key, value, training=training)
        x = add_norm(x, attended, training=training)
        scores = (weights,)

        # Cross-attention: queries of x, keys and values of the memory.
        if self.cross_attention:
            add_norm, attention = self.cross_attention_norm, self.cross_attention
            query = attention.project_query(add_norm.before(x))
            attended, weights = attention.attend(query, *memory, memory_mask, training)
            x = add_norm(x, attended, training=training)
            scores += (weights,)

        # Feed-forward: [B, T, D] -> [B, T, F] -> [B, T, D].
        add_norm = self.feed_forward_norm
        transformed = self.feed_forward(add_norm.before(x), training=training)
        return add_norm(x, transformed, training=training), (key, value), scores

    def specs(self, x, memory=None):
        """Returns symbolic outputs, and weights [B, H, T, S] of each attention."""
        keys = [x] if memory is None else [x, memory]
        weights = tuple(self.self_attention.scores_spec(x, key) for key in keys)
        return keras.KerasTensor(x.shape, dtype=self.compute_dtype), weights


# --- A stack of them ---------------------------------------------------------------------


class Stack(TransformerLayer):
    """Dropout on the embedded input (paper 5.4), then N layers.

    With `norm_first`, a final norm follows, since the residual path has none.

    Attributes:
        layers: the layers.
        recompute: computes each layer again in the backward pass, so that training stores only
            the layers' inputs. May be changed.
    """

    def __init__(
        self,
        make_layer: Callable[..., Block],
        num_layers: int,
        num_heads: int,
        d_ff: int,
        recompute: bool,
        **arguments: Any,
    ):
        super().__init__(num_heads, d_ff, **arguments)
        require_positive(num_layers=num_layers)
        options, policy = self.options, self.dtype_policy
        self.num_layers = num_layers
        self.recompute = recompute
        self.dropout = Dropout(options.dropout, name="dropout", dtype=policy)
        self.layers = [
            make_layer(**vars(options), name=f"layer_{i}", dtype=policy)
            for i in range(num_layers)
        ]
        self.norm = None
        if options.norm_first:
            self.norm = make_norm(options.norm, options.norm_epsilon, dtype=policy)

    @property
    def positions_in_attention(self) -> bool:
        """Tells whether the kind of positions acts in self-attention."""
        return POSITION_KINDS[self.options.positions].layer_class.in_attention

    def build_layers(self, *shapes):
        """Builds every layer for these input shapes, and the final norm for the first one."""
        for layer in self.layers:
            layer.build(*shapes)
        if self.norm:
            self.norm.build(shapes[0])

    def call_layers(self, x, *inputs, training, return_attention_scores, **options):
        """Applies the layers to x, each with the same other inputs.

        Returns the output; with `return_attention_scores`, also a list of each layer's scores.
        """
        options["training"] = training
        if training and not return_attention_scores and (programs := current_programs()):
            return programs.call_stack(self, x, inputs, options)
        x = self.dropout(x, training=training)
        if not return_attention_scores:
            for layer in self.layers:
                call = recomputed(layer) if self.recompute and training else layer
                x = call(x, *inputs, **options)
            return self.last_norm(x)
        scores = []
        for layer in self.layers:
            x, weights = layer(x, *inputs, return_attention_scores=True, **options)
            scores.append(weights)
        return self.last_norm(x), scores

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
