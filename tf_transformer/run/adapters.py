"""LoRA adapters (Hu et al. 2022) among saved weights: recognised by name, merged or disabled.

`MultiHeadAttention` names them query_kernel_lora_a, Keras's Dense lora_kernel_a. Weight files
hold merged kernels, so only training knows about adapters.
"""

import re

import numpy as np

from tf_transformer.run.npz import Arrays

_OURS, _OF_KERAS = (
    re.compile(r"^(.*kernel)_lora_[ab]$"),
    re.compile(r"^(.*/)lora_(kernel)_[ab]$"),
)


def kernel_of(name: str) -> str | None:
    """Returns the name of the kernel that an adapter changes; None if `name` is no adapter."""
    match = _OURS.match(name) or _OF_KERAS.match(name)
    return "".join(match.groups()) if match else None


def merged(weights: Arrays) -> Arrays:
    """Returns weights without adapters, each kernel W replaced by W + A B.

    A B has the scale 1, because training sets lora_alpha to the rank.
    """
    merged = {name: value for name, value in weights.items() if kernel_of(name) is None}
    for name, a in weights.items():
        if (kernel := kernel_of(name)) and name.endswith("_a"):
            merged[kernel] = merged[kernel] + a @ weights[f"{name[:-1]}b"]
    return merged


def idle(weights: Arrays) -> Arrays:
    """Returns the adapters among `weights` with B set to 0, so that they have no effect."""
    adapters = {name: value for name, value in weights.items() if kernel_of(name)}
    return {
        name: np.zeros_like(value) if name.endswith("_b") else value
        for name, value in adapters.items()
    }
