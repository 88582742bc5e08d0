"""Layers that are computed again in the backward pass instead of kept (Chen et al. 2016).

The plain twin is the layer itself: `tests/fast/test_recompute.py` compares the gradients.
"""

from collections.abc import Callable

import keras

from tf_transformer.fast.dropout import drawn


def recomputed(layer: keras.layers.Layer) -> Callable:
    """Returns the call of a layer in training that keeps its inputs only.

    The random states of its dropouts advance once. Each of them may be used once in a call.
    Only inputs by position have gradients; masks are passed by keyword.
    """
    generators = [
        each.seed_generator
        for each in layer._flatten_layers()
        if hasattr(each, "seed_generator")
    ]

    def call(*inputs, **options):
        seeds = [generator.next() for generator in generators]

        def forward(*tensors):
            with drawn(generators, seeds):
                return layer(*tensors, **options)

        return keras.remat(forward)(*(each for each in inputs if each is not None))

    return call
