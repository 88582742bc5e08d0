"""What models make of their arguments: embeddings, and encoder or decoder stacks."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import keras

from tf_transformer.layers import PositionalEmbedding

_STACK_ARGUMENTS = (
    "num_layers",
    "num_heads",
    "d_ff",
    "key_dim",
    "value_dim",
    "dropout",
    "norm_first",
    "attention_bias",
    "activation",
    "norm_epsilon",
)
_EMBEDDING_ARGUMENTS = ("vocab_size", "d_model", "positions", "max_length")


def stack_arguments(arguments: Mapping[str, Any], policy) -> dict[str, Any]:
    """Those of a model's arguments that an `Encoder` or a `Decoder` takes, and the policy."""
    return {name: arguments[name] for name in _STACK_ARGUMENTS} | {"dtype": policy}


def make_embedding(
    arguments: Mapping[str, Any], policy, name: str, **options
) -> PositionalEmbedding:
    """The embedding of a model's arguments, with a name and `options` of its own."""
    own = {argument: arguments[argument] for argument in _EMBEDDING_ARGUMENTS} | options
    return PositionalEmbedding(**own, name=name, dtype=policy)


def arguments_of(embedding: PositionalEmbedding, stack: keras.layers.Layer) -> dict[str, Any]:
    """The arguments from which `make_embedding` and `stack_arguments` made these layers."""
    return {name: embedding.get_config()[name] for name in _EMBEDDING_ARGUMENTS} | {
        name: stack.get_config()[name] for name in _STACK_ARGUMENTS
    }


def clonable(init: Callable) -> Callable:
    """Lets a model's constructor take a graph (inputs, outputs) as well, for `_adopt`.

    `keras.models.clone_model` copies the layers and calls the model's class with their graph,
    if its constructor takes `*args, **kwargs`. With any other class it makes a plain
    `Functional`, which has Keras's train step.
    """

    @functools.wraps(init)
    def constructor(self, *args, **kwargs):
        is_graph = any(map(keras.utils.is_keras_tensor, keras.tree.flatten(args[:1])))
        (self._adopt if is_graph else functools.partial(init, self))(*args, **kwargs)

    return constructor
