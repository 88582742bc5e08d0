"""Custom gradients, fused operations, and private hooks of Keras and TensorFlow.

`layers/` uses all but `int8` and `optimizers`: these are pure Keras.
"""
