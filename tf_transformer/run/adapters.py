"""Adapters of LoRA (Hu et al. 2022) by the names of their weights: merged, and left out.

`MultiHeadAttention` calls them query_kernel_lora_a, Keras's Dense lora_kernel_a. Files of
weights hold merged kernels, so that nothing but training knows of adapters.
"""

import re

import numpy as np

from tf_transformer.run.npz import Arrays

_OURS, _OF_KERAS = (
    re.compile(r"^(.*kernel)_lora_[ab]$"),
    re.compile(r"^(.*/)lora_(kernel)_[ab]$"),
)


def kernel_of(name: str) -> str | None:
    """Returns the name of the kernel that a weight adapts; None for a weight of the model."""
    found = _OURS.match(name) or _OF_KERAS.match(name)
    return "".join(found.groups()) if found else None


def merged(weights: Arrays) -> Arrays:
    """Returns weights without adapters, each kernel W replaced by W + A B.

    Training's adapters have the scale 1: lora_alpha is the rank.
    """
    merged = {name: value for name, value in weights.items() if kernel_of(name) is None}
    for name, a in weights.items():
        if (kernel := kernel_of(name)) and name.endswith("_a"):
            merged[kernel] = merged[kernel] + a @ weights[f"{name[:-1]}b"]
    return merged


def idle(weights: Arrays) -> Arrays:
    """Returns the adapters among weights with B = 0, which change no kernel."""
    adapters = {name: value for name, value in weights.items() if kernel_of(name)}
    return {
        name: np.zeros_like(value) if name.endswith("_b") else value
        for name, value in adapters.items()
    }
