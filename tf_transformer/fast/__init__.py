"""Custom gradients, fused operations, and every private name of Keras and TensorFlow.

A test compares each with its plain twin. `layers/` uses only the modules that are pure Keras:
dropout, normalization, recompute and tensors.
"""
