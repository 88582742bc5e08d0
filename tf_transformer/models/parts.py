"""What models make of their arguments: embeddings, and encoder or decoder stacks."""

from collections.abc import Mapping
from typing import Any

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
