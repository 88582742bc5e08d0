"""Layers recomputed in the backward pass, not stored (Chen et al. 2016)."""

from collections.abc import Callable

import keras

from tf_transformer.fast.dropout import fixed_seeds
from tf_transformer.fast.keras_hooks import sublayers


def recomputed(layer: keras.layers.Layer) -> Callable:
    """Returns a function that calls a layer in training and stores only its inputs.

    The layer's dropout seeds advance once; each generator may be used only once in a call.
    Only positional inputs receive gradients: pass masks by keyword.
    """
    layers = [layer, *sublayers(layer, recursive=True)]
    generators = [part.seed_generator for part in layers if hasattr(part, "seed_generator")]

    def call(*inputs, **options):
        seeds = [generator.next() for generator in generators]

        def forward(*tensors):
            with fixed_seeds(generators, seeds):
                return layer(*tensors, **options)

        return keras.remat(forward)(*(tensor for tensor in inputs if tensor is not None))

    return call
