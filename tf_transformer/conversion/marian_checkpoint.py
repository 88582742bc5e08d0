"""The files of a Marian checkpoint as Hugging Face's transformers write it."""

from pathlib import Path
from typing import Any

import numpy as np

from tf_transformer.errors import UserError
from tf_transformer.files import parse_json

Arrays = dict[str, np.ndarray]


def read_json(path: Path, *, optional: bool = False) -> dict[str, Any]:
    """A JSON object; an empty one for a file that is `optional` and not there."""
    if optional and not path.exists():
        return {}
    try:
        record = parse_json(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"{path} cannot be read: {error.strerror}. Expected the folder of a checkpoint as "
            "huggingface.co has it: config.json, vocab.json, source.spm, target.spm and "
            "model.safetensors or pytorch_model.bin."
        ) from None
    except ValueError as error:
        raise UserError(f"{path} is not valid JSON: {error}.") from None
    if not isinstance(record, dict):
        raise UserError(f"{path} must hold a JSON object. Received: {type(record).__name__}.")
    return record


def read_weights(folder: Path) -> Arrays:
    """All tensors of a checkpoint by their names, in float32.

    Raises:
        UserError: if there is no file of weights, it is damaged, or the library that reads it
            is not installed.
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
        raise UserError(
            f"{path} needs safetensors, which is not installed: "
            "pip install 'tf-transformer[marian]'"
        ) from None
    try:
        return load_file(path)
    except (SafetensorError, OSError, KeyError, TypeError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None


def _read_torch(path: Path) -> Arrays:
    try:
        import torch
    except ImportError:
        raise UserError(
            f"{path} needs PyTorch, which is not installed: pip install torch. Or take the "
            "checkpoint's model.safetensors, if it has one."
        ) from None
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # pickle's, zip's and its own
        reason = str(error).partition("\n")[0]
        raise UserError(f"{path} cannot be read: {reason}.") from None
    return {name: tensor.float().numpy() for name, tensor in tensors.items()}
