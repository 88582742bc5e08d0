"""Construction and serialisation of models from a `ModelConfig`."""

import dataclasses
import logging
import re
from collections.abc import Callable, Mapping
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import Any, ClassVar, Self

import keras

from tf_transformer.config import ModelConfig
from tf_transformer.config.settings import settings_of
from tf_transformer.layers import Decoder, Encoder, PositionalEmbedding
from tf_transformer.layers.frozen import set_trainable, trainable_changes
from tf_transformer.layers.stack import OPTION_NAMES, Stack
from tf_transformer.models.token_model import TokenModel

logger = logging.getLogger(__name__)

_NAMES = tuple(field.name for field in dataclasses.fields(ModelConfig))
_GENERAL = {"dtype": None, "name": None, "trainable": True}  # arguments of any Keras model


class ConfiguredModel(TokenModel):
    """A functional model made from a `ModelConfig`, or from its fields as keyword arguments.

    A subclass connects the layers in `graph`; parameters of `graph` after config and policy
    also become arguments of the model. `keras.models.clone_model` copies the layers and calls
    the class with their graph, so (inputs, outputs) are accepted as well.

    Attributes:
        graph: static method `graph(config, policy, ...)`, which creates and connects the
            layers and returns inputs and outputs.
        config: the `ModelConfig`.
        extra: the arguments of `graph` after config and policy.
        unused: settings that this model ignores.
        why_unused: the reason, for a warning.
    """

    graph: ClassVar[Callable[..., Any]]
    config: ModelConfig
    extra: Mapping[str, Any] = MappingProxyType({})
    unused: tuple[str, ...] = ()
    why_unused = ""

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        cls.__signature__ = _signature(cls)
        cls.__doc__ = _documented(cls)

    def __init__(self, *args, **kwargs):
        if any(map(keras.utils.is_keras_tensor, keras.tree.flatten(args[:1]))):
            inputs, outputs = args
        else:
            config, extra, kwargs = self._split(*args, **kwargs)
            dtype = kwargs.pop("dtype", None) or keras.config.dtype_policy()
            policy = keras.dtype_policies.get(dtype)
            inputs, outputs = self.graph(config, policy, **extra)
        super().__init__(inputs, outputs, **kwargs)
        self.take_layers({layer.name: layer for layer in self.layers})

    def take_layers(self, layers: Mapping[str, keras.layers.Layer]) -> None:
        """Sets the attributes from the layers of the graph, new or cloned."""
        raise NotImplementedError

    @classmethod
    def _split(cls, *args, **kwargs):
        """Splits the arguments into a `ModelConfig`, those of `graph`, and Keras's."""
        if isinstance(kwargs.get("config"), ModelConfig):
            args = (kwargs.pop("config"), *args)
        if args and isinstance(args[0], ModelConfig):
            config, *others = args
            cls.warn_of_unused(config)
            kwargs = cls.used(config) | kwargs
            args = (kwargs.pop("vocab_size"), *others)
        arguments = cls.__signature__.bind(*args, **kwargs).arguments
        settings = {name: arguments.pop(name) for name in _NAMES if name in arguments}
        general = {name: arguments.pop(name) for name in _GENERAL if name in arguments}
        return ModelConfig(**settings), arguments, general

    @classmethod
    def used(cls, config: ModelConfig) -> dict[str, Any]:
        """Returns the settings that this model does not ignore."""
        return {name: getattr(config, name) for name in _NAMES if name not in cls.unused}

    @classmethod
    def warn_of_unused(cls, config: ModelConfig) -> None:
        """Warns of each setting that this model ignores, unless it has its default."""
        for name in cls.unused:
            if getattr(config, name) != getattr(ModelConfig, name):
                logger.warning("model.%s has no effect: %s", name, cls.why_unused)

    def enable_lora(self, rank: int, **options) -> None:
        """Adapts the kernels of encoder and decoder; freezes embeddings and norms.

        A classifier's output layer stays trainable. Compile the model afterwards. Saving merges
        the adapters into the kernels; the model is loaded without LoRA or frozen layers.

        A `Translator` or `SentenceClassifier` that has been used before may go on without the
        adapters, because its graphs are traced: make a new one.

        Args:
            rank: rank of the adapters.
            **options: lora_alpha, a_initializer and b_initializer, as in
                `MultiHeadAttention.enable_lora`.
        """
        for layer in self.layers:
            if isinstance(layer, Stack):
                layer.enable_lora(rank, **options)
            elif not isinstance(layer, keras.layers.Dense):
                layer.trainable = False

    def get_config(self):
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        general = {"name": self.name, "trainable": self.trainable, "dtype": policy}
        changes = trainable_changes(self)
        frozen = {"trainable_changes": changes} if changes else {}
        stacks = [layer for layer in self.layers if isinstance(layer, Stack)]
        names = [stack.name for stack in stacks if stack.recompute]
        recompute = {"recompute": names} if names else {}
        return general | self.used(self.config) | self.extra | frozen | recompute

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects=None) -> Self:
        config = {**config}
        changes, recompute = config.pop("trainable_changes", {}), config.pop("recompute", ())
        model = cls(**config)
        for name in recompute:
            model.get_layer(name).recompute = True
        set_trainable(model, changes)
        return model


def _signature(cls: type[ConfiguredModel]) -> Signature:
    """Returns the constructor's signature: vocab_size, `graph`'s extras, settings, Keras's."""
    kind = Parameter.POSITIONAL_OR_KEYWORD
    _, _, *extra = signature(cls.graph).parameters.values()
    others = [
        Parameter(field.name, kind, default=field.default, annotation=field.type)
        for field in dataclasses.fields(ModelConfig)
        if field.name not in ("vocab_size", *cls.unused)
    ]
    general = [Parameter(name, kind, default=value) for name, value in _GENERAL.items()]
    return Signature([Parameter("vocab_size", kind, annotation=int), *extra, *others, *general])


def _documented(cls: type[ConfiguredModel]) -> str:
    """Returns the docstring, with {settings} replaced by the help texts of the settings."""
    lines = []
    for name, setting in settings_of(ModelConfig).items():
        if name not in cls.unused:
            choices = f" ({' or '.join(map(repr, setting.choices))})" if setting.choices else ""
            lines.append(f"{name}: {setting.help}{choices}.")
    return re.sub(
        r"( *)\{settings\}",
        lambda match: "\n".join(match[1] + line for line in lines),
        cls.__doc__ or "",
    )


def make_embedding(config: ModelConfig, policy, name: str, **changes) -> PositionalEmbedding:
    """Creates an embedding from the settings; `changes` override them."""
    names = ("vocab_size", "d_model", "positions", "max_length", "output_bias")
    arguments = {name: getattr(config, name) for name in names} | changes
    return PositionalEmbedding(**arguments, name=name, dtype=policy)


def make_stack(
    cls: type[Encoder] | type[Decoder], config: ModelConfig, policy, name: str
) -> Stack:
    """Creates an encoder or a decoder from the settings."""
    arguments = {name: getattr(config, name) for name in OPTION_NAMES}
    layers = config.num_decoder_layers if cls is Decoder else config.num_layers
    return cls(layers, **arguments, name=name, dtype=policy)


def config_of(embedding: PositionalEmbedding, stack: Stack, **settings) -> ModelConfig:
    """Recovers the `ModelConfig` of these layers; `settings` override or complete it."""
    arguments = embedding.get_config() | stack.get_config() | settings
    fields = dataclasses.fields(ModelConfig)
    return ModelConfig(**{f.name: arguments[f.name] for f in fields if f.name in arguments})
