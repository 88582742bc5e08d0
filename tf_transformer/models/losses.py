"""Label-smoothed cross-entropy over real tokens (paper 5.4)."""

import keras
from keras import ops

from tf_transformer.fast.cross_entropy import smoothed_cross_entropy
from tf_transformer.fast.keras_model import share_of_replica
from tf_transformer.layers.masking import padding_mask


def labels_of(logits, labels):
    """Returns the labels of logits [B, T, V] as [B, T], without a trailing axis of size 1.

    Args:
        logits: [B, T, V], or [B, V].
        labels: [B, T], or [B]; or a column, with a trailing axis of size 1.

    Raises:
        ValueError: if the labels have another rank.
    """
    rank = len(logits.shape) - 1
    if len(labels.shape) == rank + 1 and labels.shape[-1] in (1, None):  # a column of a table
        labels = ops.squeeze(labels, -1)
    if len(labels.shape) != rank:
        raise ValueError(
            f"Logits {tuple(logits.shape)} need one label for each row of logits: labels of "
            f"rank {rank}. Received: labels {tuple(labels.shape)}."
        )
    return labels


def token_weights(labels, sample_weight=None):
    """Computes each label's weight: 0 for padding, else 1 or its sample weight.

    Args:
        labels: integer [B, T] or [B].
        sample_weight: [B], or the shape of `labels`, optionally with a trailing axis of size 1.

    Returns:
        float32 of the shape of `labels`.
    """
    weights = ops.cast(padding_mask(labels), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    if len(sample_weight.shape) < len(weights.shape):
        sample_weight = sample_weight[:, None]
    elif len(sample_weight.shape) > len(weights.shape):  # a column of a table
        sample_weight = ops.squeeze(sample_weight, -1)
    return weights * sample_weight


@keras.saving.register_keras_serializable(package="tf_transformer")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Mean label-smoothed cross-entropy over real tokens.

    Labels are [B, T], or a column [B, T, 1]; 0 is padding. A sample weight, [B] or [B, T],
    multiplies a token's loss and its contribution to the count.

    Args:
        label_smoothing: in [0, 1); 0.1 in the paper.
        first_label: the label of column 0 of the logits: 0 for tokens, 1 for classes, which
            have no column for padding.
        scatter: False computes the same gradient without TensorFlow's scatter, which a GPU
            leaves to the CPU under `enable_op_determinism`.

    A label without a column in the logits makes the loss NaN.

    Raises:
        ValueError: if `label_smoothing` is out of range; for a `reduction` other than "sum",
            the value in `get_config`: the result is always the mean; in a call, if labels and
            logits do not match.
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        name: str = "loss",
        first_label: int = 0,
        scatter: bool = True,
        **kwargs,
    ):
        if kwargs.get("reduction", "sum") != "sum":  # the value in `get_config`
            raise ValueError(
                "The loss is the mean over real tokens: leave out `reduction`. "
                f"Received: reduction={kwargs['reduction']!r}."
            )
        if not 0 <= label_smoothing < 1:
            raise ValueError(
                f"`label_smoothing` must be in [0, 1). Received: {label_smoothing!r}."
            )
        super().__init__(name=name, **(kwargs | {"reduction": "sum"}))
        self.label_smoothing = label_smoothing
        self.first_label = first_label
        self.scatter = scatter

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = labels_of(y_pred, y_true)
        weights = token_weights(y_true, sample_weight)
        total = self.weighted_sum(y_true, y_pred, weights)
        return share_of_replica(total / ops.maximum(ops.sum(weights), 1e-9))

    def weighted_sum(self, labels, logits, weights):
        """Returns the sum of the tokens' losses times `weights` [B, T]."""
        losses = smoothed_cross_entropy(
            labels, logits, self.label_smoothing, self.first_label, self.scatter
        )
        return ops.sum(losses * weights)

    def get_config(self):
        names = ("label_smoothing", "first_label", "scatter")
        return super().get_config() | {name: getattr(self, name) for name in names}
