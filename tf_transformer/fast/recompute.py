"""Layers computed again in the backward pass, not stored (Chen et al. 2016), or compiled."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import keras

from tf_transformer.fast.dropout import FixedSeed, fixed_seeds
from tf_transformer.fast.keras_hooks import sublayers

_programs: ContextVar[Any] = ContextVar("programs", default=None)


@contextmanager
def by_programs(programs: Any) -> Iterator[None]:
    """Inside, stacks and embeddings are computed by these `fast.programs.Programs`, if any."""
    token = _programs.set(programs)
    try:
        yield
    finally:
        _programs.reset(token)


def current_programs() -> Any:
    """Returns the programs of the innermost `by_programs` block, or None."""
    return _programs.get()


def seed_generators(layer: keras.layers.Layer) -> list[keras.random.SeedGenerator]:
    """Returns the seed generators of a layer and of its sublayers."""
    layers = [layer, *sublayers(layer, recursive=True)]
    return [part.seed_generator for part in layers if hasattr(part, "seed_generator")]


def recomputed(layer: keras.layers.Layer) -> Callable:
    """Returns a function that calls a layer in training and stores only its inputs.

    The layer's dropout seeds advance once; each generator may be used only once in a call.
    Only positional inputs receive gradients: pass masks by keyword.
    """
    generators = seed_generators(layer)

    def call(*inputs, **options):
        seeds = [FixedSeed(generator.next()) for generator in generators]

        def forward(*tensors):
            with fixed_seeds(generators, seeds):
                return layer(*tensors, **options)

        return keras.remat(forward)(*(tensor for tensor in inputs if tensor is not None))

    return call
