"""Custom gradients, fused operations, and every private name of Keras and TensorFlow.

A test holds each equal to its plain twin. `layers/` uses only the modules that are pure Keras:
dropout, normalization, recompute and tensors.
"""
