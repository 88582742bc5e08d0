"""Trained models leave nothing behind: TensorFlow would keep their custom gradients forever."""

import gc

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import func_graph, ops

from tf_transformer.fast.projections import transpose
from tf_transformer.models.losses import LabelSmoothedCrossEntropy
from tf_transformer.models.transformer import Transformer

IDS = np.array([[5, 6, 7, 3], [8, 3, 0, 0]])


def alive():
    """Graphs and custom gradients that still exist."""
    gc.collect()
    graphs = sum(isinstance(thing, func_graph.FuncGraph) for thing in gc.get_objects())
    names = ops.gradient_registry.list()
    return graphs, sum(name.startswith("CustomGradient-") for name in names)


def train_once():
    model = Transformer(10, num_layers=1, d_model=8, d_ff=16, num_heads=2)
    model.encoder.recompute = True
    model.compile("adam", LabelSmoothedCrossEntropy())
    inputs = {"source": IDS, "target": IDS}
    model.fit(inputs, IDS, verbose=0, validation_data=(inputs, IDS))


def test_a_training_leaves_no_graph_and_no_gradient_behind():
    train_once()  # what the process needs once
    before = alive()
    train_once()
    assert alive() == before


def test_a_graph_keeps_its_custom_gradients():
    x = tf.constant(np.arange(9.0).reshape(1, 3, 3))
    cube = tf.function(lambda x: transpose(x, (0, 2, 1)) ** 3, autograph=False)

    def repeated(x):
        return tf.while_loop(lambda _: True, lambda y: [cube(y)], [x], maximum_iterations=1)[0]

    for function in (cube, tf.function(repeated, autograph=False)):
        with tf.GradientTape() as tape:
            tape.watch(x)
            cubes = function(x)
        gc.collect()
        np.testing.assert_allclose(tape.gradient(cubes, x), 3 * x**2)
