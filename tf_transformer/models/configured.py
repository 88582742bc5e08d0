"""The constructor and the serialisation of models made from a `ModelConfig`."""

import dataclasses
import re
from collections.abc import Mapping
from inspect import Parameter, Signature, signature
from types import MappingProxyType
from typing import Any, Self

import keras

from tf_transformer.config import ModelConfig
from tf_transformer.config.settings import settings_of
from tf_transformer.layers import PositionalEmbedding
from tf_transformer.layers.stack import Stack, accepted
from tf_transformer.models.token_model import TokenModel


class ConfiguredModel(TokenModel):
    """A functional model made from a `ModelConfig`, also given as keyword arguments.

    A subclass connects the layers in `graph`; arguments of `graph` beyond config and policy
    are arguments of the model. `keras.models.clone_model` copies the layers and calls the
    class with their graph, so (inputs, outputs) are accepted as well.

    Attributes:
        config: the `ModelConfig`.
        own: the arguments of `graph` beyond config and policy.
        unused: settings that have no layer in this model.
    """

    config: ModelConfig
    own: Mapping[str, Any] = MappingProxyType({})
    unused: tuple[str, ...] = ()

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        settings = settings_of(ModelConfig)
        settings = {name: settings[name] for name in settings if name not in cls.unused}
        kind = Parameter.POSITIONAL_OR_KEYWORD
        first, *others = (
            Parameter(name, kind, default=setting.default, annotation=setting.type)
            for name, setting in settings.items()
        )
        dtype = Parameter("dtype", kind, default=None)
        rest = Parameter("kwargs", Parameter.VAR_KEYWORD)
        own = [p.replace(kind=kind) for p in list(signature(cls.graph).parameters.values())[2:]]
        vocab_size = first.replace(default=Parameter.empty)
        cls.__signature__ = Signature([vocab_size, *own, *others, dtype, rest])
        lines = [f"{name}: {setting.help}." for name, setting in settings.items()]
        cls.__doc__ = re.sub(
            r"( *)\{settings\}", lambda m: "\n".join(m[1] + line for line in lines), cls.__doc__
        )

    def __init__(self, *args, **kwargs):
        if any(map(keras.utils.is_keras_tensor, keras.tree.flatten(args[:1]))):
            inputs, outputs = args
        else:
            config, own, dtype, kwargs = self._parse(*args, **kwargs)
            policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
            inputs, outputs = self.graph(config, policy, **own)
        super().__init__(inputs, outputs, **kwargs)
        self.take_layers({layer.name: layer for layer in self.layers})

    @staticmethod
    def graph(config: ModelConfig, policy):
        """Creates and connects the layers; returns inputs and outputs."""
        raise NotImplementedError

    def take_layers(self, layers: Mapping[str, keras.layers.Layer]) -> None:
        """Sets the attributes from the layers of the graph, new or cloned."""
        raise NotImplementedError

    @classmethod
    def _parse(cls, *args, **kwargs):
        """Splits the arguments into ModelConfig, own arguments, dtype and the rest."""
        if args and isinstance(args[0], ModelConfig):
            settings = dataclasses.asdict(args[0]) | kwargs
            args = ()
            kwargs = {name: settings[name] for name in settings if name not in cls.unused}
        bound = cls.__signature__.bind(*args, **kwargs)
        arguments = bound.arguments
        kwargs, dtype = arguments.pop("kwargs", {}), arguments.pop("dtype", None)
        names = {field.name for field in dataclasses.fields(ModelConfig)}
        settings = {name: arguments[name] for name in arguments if name in names}
        own = {name: arguments[name] for name in arguments if name not in names}
        return ModelConfig(**settings), own, dtype, kwargs

    def get_config(self):
        policy = keras.dtype_policies.serialize(self.dtype_policy)
        general = {"name": self.name, "trainable": self.trainable, "dtype": policy}
        settings = dataclasses.asdict(self.config)
        kept = {name: settings[name] for name in settings if name not in self.unused}
        return general | kept | self.own

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects=None) -> Self:
        # Earlier versions wrote None where positions are sinusoidal.
        if config.get("max_length") is None:
            config = {name: config[name] for name in config if name != "max_length"}
        return cls(**config)


def make_embedding(config: ModelConfig, policy, name: str, **changes) -> PositionalEmbedding:
    """Creates the embedding of a model; `changes` replace settings."""
    arguments = accepted(PositionalEmbedding, dataclasses.asdict(config)) | changes
    return PositionalEmbedding(**arguments, name=name, dtype=policy)


def make_stack(cls: type[Stack], config: ModelConfig, policy, name: str) -> Stack:
    """Creates the encoder or the decoder of a model."""
    return cls(**accepted(cls, dataclasses.asdict(config)), name=name, dtype=policy)


def config_of(embedding: PositionalEmbedding, stack: Stack, **settings) -> ModelConfig:
    """Returns the settings from which these layers were made, and `settings`."""
    arguments = embedding.get_config() | stack.get_config() | settings
    fields = dataclasses.fields(ModelConfig)
    return ModelConfig(**{f.name: arguments[f.name] for f in fields if f.name in arguments})
