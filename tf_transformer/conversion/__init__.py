"""Marian checkpoints to runs and back, and runs to CTranslate2."""

from collections.abc import Collection, Mapping
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.config import ModelConfig


def require_possible(
    config: ModelConfig, possible: Mapping[str, Collection[Any]], target: str
) -> None:
    """Raises UserError for a model that a target, the subject of a message, cannot carry.

    `possible` has the values of settings that it can. Heads must have the usual size.
    """
    for name, values in possible.items():
        if (value := getattr(config, name)) not in values:
            raise UserError(f"{target} lacks model.{name}={value}.")
    if {config.num_heads * size for size in config.head_sizes} != {config.d_model}:
        raise UserError(
            f"{target} needs model.key_dim and model.value_dim to be d_model / num_heads, "
            f"{config.d_model / config.num_heads:g}. "
            f"Received: {config.key_dim}, {config.value_dim}."
        )
