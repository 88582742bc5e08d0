"""Metrics over real tokens: perplexity without label smoothing, and token accuracy."""

import keras
from keras import ops

from tf_transformer.fast.cross_entropy import softmax_statistics
from tf_transformer.models.losses import labels_of, token_weights


def full_precision(dtype=None) -> str:
    """Returns `dtype` (`floatx` if None), or float32 if that is more precise.

    float16 overflows beyond 65,504 tokens, and bfloat16 cannot count beyond 256.
    """
    return keras.backend.result_type(dtype or keras.config.floatx(), "float32")


class TokenMean(keras.metrics.Metric):
    """Mean of a per-token value over all real tokens seen since the last reset.

    Args:
        first_label: the label of column 0 of the logits; see `LabelSmoothedCrossEntropy`.

    Raises:
        ValueError: in `update_state`, if labels and logits do not match.
    """

    default_name: str

    def __init__(self, name: str | None = None, first_label: int = 0, dtype=None, **kwargs):
        super().__init__(name=name or self.default_name, dtype=full_precision(dtype), **kwargs)
        self.first_label = first_label
        self.total = self.add_weight(name="total", initializer="zeros", dtype=self.dtype)
        self.count = self.add_weight(name="count", initializer="zeros", dtype=self.dtype)

    def update_state(self, y_true, y_pred, sample_weight=None):
        y_true = labels_of(y_pred, y_true)
        weights = token_weights(y_true, sample_weight)
        values = self.token_values(y_true, ops.cast(y_pred, "float32"))
        self.total.assign_add(ops.sum(values * weights))
        self.count.assign_add(ops.sum(weights))

    def token_values(self, labels, logits):
        """Returns the values [B, T] of labels [B, T] and logits [B, T, V]."""
        raise NotImplementedError

    def result(self):
        return ops.divide_no_nan(self.total, self.count)

    def get_config(self):
        return super().get_config() | {"first_label": self.first_label}


@keras.saving.register_keras_serializable(package="tf_transformer")
class Perplexity(TokenMean):
    """Exponential of the mean negative log-likelihood per token, never smoothed (Table 3)."""

    default_name = "perplexity"

    def token_values(self, labels, logits):
        _, log_sum, _, label_logits = softmax_statistics(labels, logits, self.first_label)
        return log_sum - label_logits

    def result(self):
        return ops.exp(super().result())


@keras.saving.register_keras_serializable(package="tf_transformer")
class TokenAccuracy(TokenMean):
    """Fraction of real tokens whose label has the highest logit, alone or tied."""

    default_name = "accuracy"

    def token_values(self, labels, logits):
        # The loss computes the maximum and the label's logit anyway; an argmax would be extra.
        _, _, maximum, label_logits = softmax_statistics(labels, logits, self.first_label)
        return ops.cast(label_logits >= maximum, "float32")


@keras.saving.register_keras_serializable(package="tf_transformer")
class TokenCount(TokenMean):
    """Number of real target tokens since the last reset, each times its sample weight."""

    default_name = "tokens"

    def token_values(self, labels, logits):
        return ops.ones_like(labels, "float32")

    def result(self):
        return self.total + 0.0
