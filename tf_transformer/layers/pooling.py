"""Vectors of all positions as one vector, for a classifier."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="tf_transformer")
class MeanPooling(keras.layers.Layer):
    """Mean over unmasked positions: [B, S, D] -> float32 [B, D]; zeros if there are none.

    Computed in float32 whatever the policy: a bfloat16 sum over many positions loses small
    terms.

    Example:
        >>> MeanPooling()(keras.ops.array([[[1.0], [3.0]]])).numpy().tolist()
        [[2.0]]
    """

    def __init__(self, **kwargs):
        super().__init__(**(kwargs | {"dtype": "float32"}))
        self.supports_masking = True

    def call(self, inputs, mask=None):
        if mask is None:
            return ops.mean(inputs, axis=1)
        weights = ops.expand_dims(ops.cast(mask, "float32"), -1)  # [B, S, 1]
        count = ops.maximum(ops.sum(weights, axis=1), 1.0)
        return ops.sum(inputs * weights, axis=1) / count

    def compute_mask(self, inputs, mask=None):
        return None

    def compute_output_shape(self, inputs_shape):
        return inputs_shape[0], inputs_shape[2]
