"""Private hooks of Keras and TensorFlow, under public names.

The plain twin is `keras.Model`: `tests/models/test_token_model.py` compares the two.
"""

import weakref
from collections.abc import Iterator
from contextlib import contextmanager

import keras
from keras.src.backend import get_keras_mask
from keras.src.losses.loss import scale_loss_for_distribution


class GradientRegistry(dict):
    """The gradients that TensorFlow has registered, each custom one kept by its graph alone.

    TensorFlow registers the gradient function of every `custom_gradient` in a graph under a
    new name, forever, and the function refers to the graph: no model trained in the process
    would ever be freed. Here the graph keeps the function, and its end removes the name.
    """

    def __setitem__(self, name, entry):
        if name.startswith("CustomGradient-"):
            graph, gradient = ops.get_default_graph(), entry["type"]
            graph.custom_gradients = [*getattr(graph, "custom_gradients", ()), gradient]
            weak = weakref.ref(gradient)
            entry = entry | {"type": lambda *arguments: weak()(*arguments)}
            weakref.finalize(graph, self.pop, name, None).atexit = False
        super().__setitem__(name, entry)


if keras.backend.backend() == "tensorflow":
    from tensorflow import bitcast, convert_to_tensor
    from tensorflow.python.eager.record import stop_recording as without_tape  # noqa: F401
    from tensorflow.python.framework import ops

    ops.gradient_registry._registry = GradientRegistry(ops.gradient_registry._registry)
else:
    bitcast = keras.ops.view  # which computes shapes besides


def mask_of(x):
    """Returns the mask that Keras attached to a tensor, or None."""
    return get_keras_mask(x)


def share_of_replica(loss):
    """Divides a loss by the number of replicas, whose gradients Keras's own step adds up."""
    return scale_loss_for_distribution(loss)


def stored_value(variable: keras.Variable):
    """Returns a variable's value in its own dtype, also where Keras would cast it."""
    return convert_to_tensor(variable._value)


def handle_of(variable):
    """Returns the resource handle of TensorFlow's variable, or of its copy on this device."""
    return (variable._get() if hasattr(variable, "_get") else variable).handle


def sublayers(layer: keras.layers.Layer, recursive: bool = False) -> list[keras.layers.Layer]:
    """Returns the layers inside a layer or model, each once."""
    return layer._flatten_layers(include_self=False, recursive=recursive)


@contextmanager
def unlocked(layer: keras.layers.Layer, variable: keras.Variable) -> Iterator[None]:
    """Removes a variable from a layer; in the block, others can be added to it."""
    layer._untrack_variable(variable)
    layer._tracker.unlock()
    yield
    layer._tracker.lock()


class KerasModel(keras.Model):
    """A `keras.Model` whose loss tracker and compiled metrics can be replaced."""

    def drop_metrics(self) -> None:
        """Drops the metrics of an earlier `compile`, which `metrics=None` would keep."""
        self._compile_metrics = None

    def variables_of_metrics(self, labels, logits) -> list[keras.Variable]:
        """Returns the variables of all metrics; some are made for labels and logits first."""
        if self._compile_metrics is not None and not self._compile_metrics.built:
            self._compile_metrics.build(labels, logits)
        return self.metrics_variables

    def last_call(self) -> tuple[keras.layers.Layer, keras.KerasTensor]:
        """Returns the layer that computes a functional model's output, and its input."""
        layer, index, _ = self.output._keras_history
        return layer, layer._inbound_nodes[index].input_tensors[0]

    @property
    def mean_loss(self) -> keras.metrics.Mean:
        """The mean of the loss since the last reset."""
        return self._loss_tracker

    def replace_mean_loss(self, mean: keras.metrics.Mean) -> None:
        """Replaces the loss tracker without tracking the new one as a metric too."""
        object.__setattr__(self, "_loss_tracker", mean)

    def _maybe_symbolic_build(self, iterator=None, data_batch=None):
        """Builds without data under a strategy.

        Keras would build on the mean of the replicas' first batches, which fails if their
        shapes differ and under MultiWorkerMirroredStrategy.
        """
        if self._distribute_strategy is None:
            super()._maybe_symbolic_build(iterator=iterator, data_batch=data_batch)
            return
        with self.distribute_strategy.scope():
            if self.optimizer is not None and not self.optimizer.built:
                self.optimizer.build(self.trainable_variables)
            self._post_build()


def number_anew():
    """Gives the functions that TensorFlow makes next the same numbers in every process.

    XLA's cache on disk finds a program by its function's name, and a number in it counts what
    TensorFlow did before, which differs between a new and a resumed training, and commands.
    """
    while ops.uid() % 100_000:
        pass
