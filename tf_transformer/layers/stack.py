"""Base classes of encoder and decoder layers, and of stacks of N such layers."""

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields
from inspect import Signature, signature
from typing import Any, TypeVar

import keras

from tf_transformer.fast.dropout import Dropout
from tf_transformer.fast.normalization import LayerNormalization
from tf_transformer.fast.recompute import recomputed
from tf_transformer.layers.attention import MultiHeadAttention
from tf_transformer.layers.feed_forward import AddAndNorm, FeedForward, activation_config
from tf_transformer.layers.frozen import set_trainable, trainable_changes


@dataclass(frozen=True)
class LayerOptions:
    """Arguments of an encoder or decoder layer, and of a stack of them.

    Attributes:
        num_heads: number of heads H.
        d_ff: inner width F of the feed-forward network.
        key_dim: size per head of queries and keys; D / H if None.
        value_dim: size per head of values; D / H if None.
        dropout: dropout rate of the output of each sublayer.
        attention_dropout: dropout rate of the attention weights; the paper has none there.
        activation_dropout: dropout rate inside the feed-forward network; the paper has none
            there.
        activation: name of the feed-forward network's activation in Keras, or a function.
        norm_first: pre-LN; False is post-LN, as in the paper.
        norm_epsilon: added to the variance in each layer norm.
        attention_bias: adds biases to the attention projections; the paper has none.
        query_key_gain: factor on the initial kernels of queries and keys.
        value_gain: factor on the initial kernels of values.
    """

    num_heads: int
    d_ff: int
    _: KW_ONLY
    key_dim: int | None = None
    value_dim: int | None = None
    dropout: float = 0.0
    attention_dropout: float = 0.0
    activation_dropout: float = 0.0
    activation: str | Callable = "relu"
    norm_first: bool = False
    norm_epsilon: float = 1e-6
    attention_bias: bool = False
    query_key_gain: float = 1.0
    value_gain: float = 1.0


OPTION_NAMES = tuple(field.name for field in fields(LayerOptions))
Init = TypeVar("Init", bound=Callable[..., None])


def with_options(init: Init) -> Init:
    """Lists the fields of `LayerOptions` in a constructor's signature, for its `**options`."""
    *own, options = signature(init).parameters.values()
    _, _, *others = signature(LayerOptions).parameters.values()
    parameters = [*own, *others, options.replace(name="kwargs")]
    vars(init)["__signature__"] = Signature(parameters)
    return init


class TransformerLayer(keras.layers.Layer):
    """An encoder or decoder layer, or a stack of them.

    `LayerOptions` holds their common arguments; its text replaces {arguments} in the docstring
    of a subclass.

    Args:
        num_heads: number of heads H.
        d_ff: inner width F of the feed-forward network.
        **options: other fields of `LayerOptions`, and arguments of any Keras layer.
    """

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        *_, arguments = (LayerOptions.__doc__ or "").split("Attributes:\n")
        cls.__doc__ = (cls.__doc__ or "").replace("{arguments}", arguments.strip())

    def __init__(self, num_heads: int, d_ff: int, **options: Any):
        chosen = {name: options.pop(name) for name in OPTION_NAMES if name in options}
        super().__init__(**options)
        self.options = LayerOptions(num_heads, d_ff, **chosen)
        self.supports_masking = True

    def make_attention(self, name: str) -> MultiHeadAttention:
        """Creates an attention sublayer."""
        options = self.options
        return MultiHeadAttention(
            options.num_heads,
            options.key_dim,
            options.value_dim,
            use_bias=options.attention_bias,
            query_key_gain=options.query_key_gain,
            value_gain=options.value_gain,
            dropout=options.attention_dropout,
            name=name,
            dtype=self.dtype_policy,
        )

    def make_feed_forward(self, name: str) -> FeedForward:
        """Creates the feed-forward sublayer."""
        options, policy = self.options, self.dtype_policy
        dropout = options.activation_dropout
        return FeedForward(options.d_ff, options.activation, dropout, name=name, dtype=policy)

    def make_norm(self, name: str) -> AddAndNorm:
        """Creates the Add & Norm of a sublayer."""
        options, policy = self.options, self.dtype_policy
        return AddAndNorm(
            options.dropout, options.norm_first, options.norm_epsilon, name=name, dtype=policy
        )

    def enable_lora(self, rank: int, **options) -> None:
        """Adapts the kernels of attention and feed-forward networks; freezes the norms.

        Arguments are those of `MultiHeadAttention.enable_lora`.
        """
        for layer in self._sublayers():
            if hasattr(layer, "enable_lora"):
                layer.enable_lora(rank, **options)
            else:
                layer.trainable = False

    def compute_output_shape(self, inputs_shape, *others):
        return inputs_shape

    def _sublayers(self) -> list[keras.layers.Layer]:
        return [value for value in vars(self).values() if isinstance(value, keras.layers.Layer)]

    def get_config(self):
        config = vars(self.options)
        activation = activation_config(self.options.activation)
        changes = trainable_changes(self)
        frozen = {"trainable_changes": changes} if changes else {}
        return super().get_config() | config | {"activation": activation} | frozen

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        changes = config.pop("trainable_changes", {})
        layer = super().from_config(config)
        set_trainable(layer, changes)
        return layer


class Stack(TransformerLayer):
    """Dropout on the embedded input (paper 5.4), then N layers.

    With `norm_first`, a final LayerNorm follows, since the residual path has none.

    Args:
        make_layer: creates a layer from the fields of `LayerOptions`, name and dtype.
        num_layers: N.
        num_heads: number of heads H.
        d_ff: inner width F of the feed-forward network.
        **options: as for `TransformerLayer`.

    Attributes:
        recompute: recomputes each layer in the backward pass, so that training stores only the
            layers' inputs. False by default.
        trained_length: longest sequence in training, None if unknown; only kept for a model.
    """

    recompute = False
    trained_length: int | None = None

    def __init__(
        self,
        make_layer: Callable[..., TransformerLayer],
        num_layers: int,
        num_heads: int,
        d_ff: int,
        **options: Any,
    ):
        super().__init__(num_heads, d_ff, **options)
        self.num_layers = num_layers
        policy, arguments = self.dtype_policy, vars(self.options)
        self.dropout = Dropout(self.options.dropout, name="dropout", dtype=policy)
        self.layers = [
            make_layer(**arguments, name=f"layer_{i}", dtype=policy) for i in range(num_layers)
        ]
        self.norm = None
        if self.options.norm_first:
            epsilon = self.options.norm_epsilon
            self.norm = LayerNormalization(epsilon=epsilon, name="norm", dtype=policy)

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

    def compute_output_spec(self, *args, **kwargs):
        specs = [layer.compute_output_spec(*args, **kwargs) for layer in self.layers]
        if not kwargs.get("return_attention_scores"):
            return specs[-1]
        return specs[-1][0], [scores for _, scores in specs]

    def _sublayers(self):
        return [*super()._sublayers(), *self.layers]

    def last_norm(self, x):
        """Applies the final layer norm, if there is one."""
        return self.norm(x) if self.norm else x

    def get_config(self):
        state = {"recompute": self.recompute, "trained_length": self.trained_length}
        state = {name: value for name, value in state.items() if value}
        return super().get_config() | {"num_layers": self.num_layers} | state

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        recompute = config.pop("recompute", False)
        length = config.pop("trained_length", None)
        stack = super().from_config(config)
        stack.recompute, stack.trained_length = recompute, length
        return stack
