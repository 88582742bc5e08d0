"""Custom gradients, fused operations, and what needs private names of Keras.

A test compares each with its plain twin. `layers/` uses only the modules that are pure Keras:
dropout, normalization, recompute and tensors.
"""
