"""Custom gradients, fused operations, and every private name of Keras and TensorFlow.

Each stands beside its plain twin in a test that holds the two equal. `layers/` uses only the
modules that are pure Keras: dropout, normalization and tensors.
"""
