"""Base class of `Transformer` and `Classifier`: LoRA, and what their files keep."""

from typing import Any, Self

import keras

from tf_transformer.config import ModelConfig
from tf_transformer.fast.keras_model import sublayers
from tf_transformer.layers.stack import Stack
from tf_transformer.models.token_model import TokenModel


class BaseTransformer(TokenModel):
    """A functional model with stacks of encoder or decoder layers.

    Its `get_config` holds the arguments of its constructor, which layers are frozen and which
    stacks are recomputed; `from_config` restores all of them.

    Attributes:
        config: the `ModelConfig` of its settings.
    """

    config: ModelConfig

    def enable_lora(self, rank: int, **options: Any) -> None:
        """Adapts the kernels of encoder and decoder; freezes embeddings and norms.

        A classifier's output layer stays trainable. Compile the model afterwards. Saving merges
        the adapters into the kernels; the model is loaded without LoRA or frozen layers.

        A `Translator` or `SentenceClassifier` that has been used before may go on without the
        adapters, because its graphs are traced: make a new one.

        Args:
            rank: rank of the adapters.
            **options: lora_alpha, a_initializer and b_initializer, as in
                `keras.layers.Dense.enable_lora`.
        """
        for layer in self.layers:
            if isinstance(layer, Stack):
                layer.enable_lora(rank, **options)
            elif not isinstance(layer, keras.layers.Dense):
                layer.trainable = False

    def get_config(self) -> dict[str, Any]:
        parts = sublayers(self, recursive=True)
        adapted = any(getattr(part, "lora_enabled", False) for part in parts)
        return {
            "name": self.name,
            "trainable": self.trainable,
            "dtype": keras.dtype_policies.serialize(self.dtype_policy),
            # Without adapters, a loaded model trains all of its layers again.
            "frozen": [part.path for part in parts if not (part.trainable or adapted)],
            "recompute": [part.name for part in parts if getattr(part, "recompute", False)],
        }

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects=None) -> Self:
        config = dict(config)
        frozen, recompute = config.pop("frozen", ()), config.pop("recompute", ())
        model = cls(**config)
        for part in sublayers(model, recursive=True):  # outer layers first
            part.trainable = part.path not in frozen
        for name in recompute:
            model.get_layer(name).recompute = True
        return model


def embedding_arguments(config: ModelConfig) -> dict[str, Any]:
    """Returns the arguments of a `PositionalEmbedding` without output bias."""
    return {
        "vocab_size": config.vocab_size,
        "d_model": config.d_model,
        "positions": config.positions,
        "max_length": config.max_length,
    }


def stack_arguments(config: ModelConfig) -> dict[str, Any]:
    """Returns the arguments of an `Encoder` or `Decoder`, without the number of layers."""
    return {
        "num_heads": config.num_heads,
        "d_ff": config.d_ff,
        "key_dim": config.key_dim,
        "value_dim": config.value_dim,
        "dropout": config.dropout,
        "attention_dropout": config.attention_dropout,
        "activation_dropout": config.activation_dropout,
        "activation": config.activation,
        "norm_first": config.norm_first,
        "norm_epsilon": config.norm_epsilon,
        "attention_bias": config.attention_bias,
        "query_key_gain": config.query_key_gain,
        "value_gain": config.value_gain,
    }
