"""Custom gradients, fused operations, and private hooks of Keras and TensorFlow.

`layers/` uses `operations` and `keras_model`, which are pure Keras.
"""
