"""Layer normalization (paper 3.1; Ba et al. 2016) with an explicit gradient."""

import keras
from keras import ops


def normalize(inputs, epsilon: float):
    """Returns (x - mean) / sqrt(variance + epsilon) over the last axis, and 1 / sqrt(...)."""
    centred = inputs - ops.mean(inputs, axis=-1, keepdims=True)
    variance = ops.mean(ops.square(centred), axis=-1, keepdims=True)
    inverse = ops.rsqrt(variance + epsilon)
    return centred * inverse, inverse


def normalize_in_training(inputs, gamma, beta, epsilon: float):
    """Returns `normalize` * gamma + beta, with a gradient that needs little memory.

    Only the normalized x and 1 / sqrt(variance + epsilon) are kept between the passes. The
    gradient of the inputs is g = dy * gamma, less its components along 1 and the normalized x,
    divided by sqrt(variance + epsilon). Takes float32 or float64 [..., D], and a scale `gamma`
    and an offset `beta`, both [D].
    """
    width = inputs.shape[-1]

    @ops.custom_gradient
    def norm(inputs, gamma, beta):
        normal, inverse = normalize(inputs, epsilon)

        def gradient(upstream):
            rows = ops.reshape(upstream, (-1, width))
            products = ops.reshape(upstream * normal, (-1, width))
            # Both means over D of g and of g * x, as products with gamma / D.
            weights = ops.reshape(gamma / width, (width, 1))
            shape = ops.shape(inverse)
            along_one = ops.reshape(ops.matmul(rows, weights), shape)
            along_x = ops.reshape(ops.matmul(products, weights), shape)
            inner = upstream * gamma - along_one - normal * along_x
            return inner * inverse, ops.sum(products, axis=0), ops.sum(rows, axis=0)

        return normal * gamma + beta, gradient

    return norm(inputs, gamma, beta)


@keras.saving.register_keras_serializable(package="tf_transformer")
class LayerNormalization(keras.layers.LayerNormalization):
    """Keras's LayerNormalization over the last axis, with scale and offset; faster in training.

    Computes in float32 under half-precision policies. Raises ValueError for another `axis`, for
    `rms_scaling`, or without `center` or `scale`.
    """

    def __init__(self, epsilon: float = 1e-3, **kwargs):
        super().__init__(epsilon=epsilon, **kwargs)
        plain = self.center and self.scale and not self.rms_scaling
        if self.axis not in (-1, [-1]) or not plain:
            raise ValueError(
                "Only the last axis, with scale and offset, can be normalised. Received: "
                f"axis={self.axis}, center={self.center}, scale={self.scale}, "
                f"rms_scaling={self.rms_scaling}."
            )

    def call(self, inputs, training=None):
        dtype = keras.backend.result_type(inputs.dtype, "float32")
        tensors = (inputs, self.gamma, self.beta)
        inputs, gamma, beta = (ops.cast(tensor, dtype) for tensor in tensors)
        if training:
            outputs = normalize_in_training(inputs, gamma, beta, self.epsilon)
        else:  # no custom gradient, which would slow down saving a SavedModel
            outputs = normalize(inputs, self.epsilon)[0] * gamma + beta
        return ops.cast(outputs, self.compute_dtype)
