"""The paper's learning rate (paper 5.3, equation 3)."""

import keras
from keras import ops


@keras.saving.register_keras_serializable(package="tf_transformer")
class TransformerSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """Learning rate scale * d_model^-0.5 * min(step^-0.5, step * warmup_steps^-1.5).

    Steps count from 1. Keras counts from 0, for which the formula would give 0 and waste the
    first update.

    Args:
        d_model: D.
        warmup_steps: steps of linear growth; 4,000 in the paper.
        scale: 1 in the paper.
        start: steps of the schedule to skip.
    """

    def __init__(
        self, d_model: int, warmup_steps: int = 4_000, scale: float = 1.0, start: int = 0
    ):
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale
        self.start = start

    def __call__(self, step):
        step = ops.cast(step, "float32") + (self.start + 1.0)
        decay = ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)
        return self.scale * self.d_model**-0.5 * decay

    def get_config(self):
        return {
            "d_model": self.d_model,
            "warmup_steps": self.warmup_steps,
            "scale": self.scale,
            "start": self.start,
        }
