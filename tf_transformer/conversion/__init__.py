"""Marian checkpoints to runs and back, and runs to CTranslate2."""

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from tf_transformer.base.errors import UserError, missing_extra
from tf_transformer.config import ModelConfig
from tf_transformer.run.checkpoints import Arrays


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


def read_weights(folder: Path) -> Arrays:
    """Reads all tensors of a checkpoint by their names, in float32.

    Raises:
        UserError: if the weights are missing or damaged, or the library that reads them is not
            installed.
    """
    readers = {"model.safetensors": _read_safetensors, "pytorch_model.bin": _read_torch}
    for name, read in readers.items():
        if (folder / name).exists():
            tensors = read(folder / name)
            return {key: np.asarray(value, "float32") for key, value in tensors.items()}
    raise UserError(f"{folder} has no weights. Expected {' or '.join(readers)} in it.")


def _read_safetensors(path: Path) -> Arrays:
    try:
        from safetensors import SafetensorError
        from safetensors.numpy import load_file
    except ImportError:
        raise missing_extra(str(path), "safetensors", "marian") from None
    try:
        return load_file(path)
    except (SafetensorError, OSError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None


def _read_torch(path: Path) -> Arrays:
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path} needs PyTorch, which is not installed: pip install torch. Or use the "
            "checkpoint's model.safetensors, if it has one."
        ) from None
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # raised by pickle, zipfile or torch
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path} cannot be read: {reason}.") from None
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}
