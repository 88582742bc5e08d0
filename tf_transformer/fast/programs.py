"""Training by XLA programs: one for each kind of layer and its gradient, not one for a step.

A program takes the weights of a layer as arguments, so that all layers of a stack share it, and
is compiled again for a new shape only. The backward pass computes the layer again: between the
passes only the layer's inputs are stored.
"""

import itertools
import logging
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from tf_transformer.base.errors import one_line
from tf_transformer.fast.dropout import Hashed, fixed_seeds
from tf_transformer.fast.keras_hooks import stored_value, without_tape
from tf_transformer.fast.recompute import seed_generators

logger = logging.getLogger(__name__)


class Program:
    """A layer's call and its gradient as two functions of weights, seeds and inputs.

    Args:
        call: takes the inputs, and the masks by name.
        variables: the weights of the layer that is traced, in place of which others are given.
        trained: for each of them, whether it receives a gradient.
        generators: the layer's seed generators, each of which gets a seed of its own.
    """

    def __init__(
        self,
        call: Callable,
        variables: Sequence[keras.Variable],
        trained: Sequence[bool],
        generators: Sequence[keras.random.SeedGenerator],
    ) -> None:
        self._call = call
        self._variables = variables
        self._trained = trained
        self._generators = generators
        self.forward = tf.function(self._forward, jit_compile=True, autograph=False)
        self.backward = tf.function(self._backward, jit_compile=True, autograph=False)

    def _forward(self, weights, seeds, inputs, masks):
        scope = keras.StatelessScope(list(zip(self._variables, weights, strict=True)))
        own = [Hashed(seed) for seed in tf.unstack(seeds, len(self._generators))]
        with scope, fixed_seeds(self._generators, own):
            outputs = self._call(*inputs, **masks)
        others = [t.name for _, t in outputs.graph.captures if t.dtype == tf.resource]
        if others:
            raise ValueError(
                "A layer compiled by XLA may read its own weights only, created by its "
                f"`add_weight`: train with jit_compile=False. Received: others, in {others}."
            )
        return outputs

    def _backward(self, weights, seeds, inputs, masks, upstream):
        trained = [w for w, wanted in zip(weights, self._trained, strict=True) if wanted]
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch([trained, inputs])
            outputs = self._forward(weights, seeds, inputs, masks)
        gradients = tape.gradient(
            outputs, [*trained, *inputs], upstream, tf.UnconnectedGradients.ZERO
        )
        return [tf.convert_to_tensor(gradient) for gradient in gradients]  # sums slices

    def __call__(self, weights, seeds, inputs, masks):
        """Calls the program; trained weights and inputs receive gradients, masks do not."""

        @tf.custom_gradient
        def compiled(*tensors):
            own, given = list(tensors[: len(weights)]), list(tensors[len(weights) :])

            def gradient(upstream):
                gradients = iter(self.backward(own, seeds, given, masks, upstream))
                wanted = [*self._trained, *(True for _ in given)]
                return [next(gradients) if each else None for each in wanted]

            with without_tape():  # which would store what the layer computes
                return self.forward(own, seeds, given, masks), gradient

        return compiled(*weights, *inputs)


class Programs:
    """The programs of a model, made when layers ask for them: `fast.recompute.by_programs`."""

    def __init__(self) -> None:
        self._made: dict[Any, Program] = {}

    @property
    def functions(self) -> int:
        """The number of functions so far, forward and backward, that XLA compiles per shape."""
        return 2 * len(self._made)

    def call(
        self,
        layer: keras.layers.Layer,
        inputs: Sequence[Any],
        options: Mapping[str, Any],
        *,
        seeds: Any = None,
        like: keras.layers.Layer | None = None,
        function: Callable | None = None,
        leave_out: Sequence[keras.Variable] = (),
    ):
        """Calls a layer as a program.

        Args:
            layer: whose weights are used.
            inputs: tensors that receive gradients; None is left out.
            options: further arguments: masks, and constants.
            seeds: int64, one for each of the layer's seed generators.
            like: the layer, of equal structure, that shares the program; itself if None.
            function: what is called instead of the layer.
            leave_out: weights that the function does not read.
        """
        masks = {name: tf.convert_to_tensor(v) for name, v in options.items() if _is_array(v)}
        constants = {name: v for name, v in options.items() if name not in masks}
        variables = [w for w in layer.weights if not any(w is other for other in leave_out)]
        structure = structure_of(layer)
        trained = [structure[id(weight)][1] for weight in variables]
        key = id(like or layer), tuple(structure.values()), *constants.items(), *masks
        if key not in self._made:
            call = function or layer
            self._made[key] = Program(
                lambda *tensors, **masks: call(*tensors, **masks, **constants),
                variables, trained, seed_generators(layer),
            )  # fmt: skip
        if seeds is None:
            seeds = tf.zeros([0], tf.int64)
        given = [tensor for tensor in inputs if tensor is not None]
        return self._made[key](list(map(stored_value, variables)), seeds, given, masks)

    def call_stack(self, stack, x, inputs, options):
        """Does what `Stack.call_layers` does in training, without the attention weights."""
        drawn = iter(draw_seeds([stack.dropout, *stack.layers]))
        seeds = next(drawn)
        if seed_generators(stack.dropout):
            x = self.call(stack.dropout, [x], {"training": True}, seeds=seeds)
        for layer in stack.layers:
            like, seeds = stack.layers[0], next(drawn)
            x = self.call(layer, [x, *inputs], options, seeds=seeds, like=like)
        return self.call(stack.norm, [x], {"training": True}) if stack.norm else x


def structure_of(layer: keras.layers.Layer) -> dict[int, tuple]:
    """Returns the shape of each weight, and whether it is trained, by its id.

    Layers of a stack share a program if these are equal, in order.
    """
    trained = {id(weight) for weight in layer.trainable_weights}
    return {id(w): (tuple(w.shape), id(w) in trained) for w in layer.weights}


def _is_array(value: Any) -> bool:
    return hasattr(value, "dtype")


def draw_seeds(layers: Sequence[keras.layers.Layer]) -> Iterator[tf.Tensor]:
    """Returns int64 seeds for the generators of each layer, all drawn in one operation.

    Only the first generator advances. Its state is saved in checkpoints and differs between
    replicas; TensorFlow's generator mixes all of its 128 bits.
    """
    generators = [seed_generators(layer) for layer in layers]
    counts = [len(each) for each in generators]
    first = next((each[0] for each in generators if each), None)
    if first is None:
        return iter([tf.zeros([0], tf.int64)] * len(layers))
    # int64, since a GPU keeps int32 in the memory of the host.
    seeds = tf.random.stateless_uniform([sum(counts)], first.next(), None, None, tf.int64)
    return iter(tf.split(seeds, counts))


def warn_of_failure(what: str, error: tf.errors.OpError) -> None:
    """Logs in one line that `what` goes on without XLA, and why, without TensorFlow's stack."""
    [text, *_] = re.split(r"\s*\[\[|\s*\[Op:", error.message)
    reason = one_line((text.strip() or type(error).__name__).splitlines()[-1])
    logger.warning("XLA cannot compile (%s): %s goes on without it", reason, what)


def fitted_size(number: Any, least: int = 1) -> tf.Tensor:
    """Returns the smallest of `least` times 1, 2, 4, ... that is not below an int32 scalar.

    For a dimension of tensors, for whose every size XLA compiles a program; 0 for 0.
    """
    sizes = least * 2 ** np.arange(31 - least.bit_length(), dtype=np.int32)
    smaller = tf.math.count_nonzero(sizes < number, dtype=tf.int32)
    return tf.where(number > 0, tf.gather(sizes, smaller), 0)


def prune_cache(flags: str, days: float = 90.0, most: int = 10 << 30) -> None:
    """Deletes old programs from the folder that TF_XLA_FLAGS names, if it does.

    They are those that nobody has read for `days`, then the oldest beyond `most` bytes.
    """
    named = re.search(r"--tf_xla_persistent_cache_directory=(\S+)", flags)
    used: list[tuple[float, int, Path]] = []
    for file in Path(named[1]).glob("*__*.pb") if named else ():
        with suppress(OSError):  # another session has deleted it
            status = file.stat()
            used.append((max(status.st_atime, status.st_mtime), status.st_size, file))
    used.sort(reverse=True)
    sizes, since = (
        itertools.accumulate(size for _, size, _ in used),
        time.time() - days * 86_400,
    )
    old = [
        each[2]
        for each, size in zip(used, sizes, strict=True)
        if size > most or each[0] < since
    ]
    for file in old:
        file.unlink(missing_ok=True)
    if old:
        text = "XLA: programs deleted, unused for %g days or beyond %d GiB: %d"
        logger.info(text, days, most >> 30, len(old))
