"""Label-smoothed cross-entropy over real tokens (paper 5.4)."""

import keras
from keras import ops

from tf_transformer.layers.masking import padding_mask


def softmax_statistics(labels, logits, first_label: int = 0):
    """What loss and metrics need of the logits, in one place so that the graph shares it.

    Args:
        labels: integer [B, T], or [B].
        logits: float32 [B, T, V], or [B, V].
        first_label: the label that column 0 of the logits stands for.

    Returns:
        The softmax [B, T, V]; the logarithm of the sum of exp(logits), the maximum and the
        label's logit, [B, T] each; without T where `labels` have none.
    """
    # One operation; exponentials and their sum by themselves are three more over all logits.
    probabilities = ops.softmax(logits, axis=-1)
    maximum = ops.max(logits, axis=-1)
    # The largest probability cannot underflow.
    log_sum = maximum - ops.log(ops.max(probabilities, axis=-1))
    vocab_size = logits.shape[-1]
    positions = _label_positions(labels, vocab_size, first_label)
    label_logits = ops.take(ops.reshape(logits, (-1,)), positions)
    return probabilities, log_sum, maximum, ops.reshape(label_logits, ops.shape(labels))


def _label_positions(labels, vocab_size: int, first_label: int):
    """Where the label's logits are in a flat [B * T * V]: int64, which 2^31 do not overflow."""
    flat_labels = ops.reshape(ops.cast(labels, "int64"), (-1,))
    if first_label:
        flat_labels = ops.maximum(flat_labels - first_label, 0)  # padding: any column will do
    rows = ops.arange(ops.size(flat_labels), dtype="int64")
    return rows * vocab_size + flat_labels


def _label_columns(labels, vocab_size: int, first_label: int):
    """True in the label's column: [B, T, V]."""
    columns = ops.maximum(ops.cast(labels, "int32") - first_label, 0)
    return ops.equal(columns[..., None], ops.arange(vocab_size, dtype="int32"))


def smoothed_cross_entropy(
    labels, logits, label_smoothing: float, first_label: int = 0, scatter: bool = True
):
    """Cross-entropy with (1 - e) on the label and e spread over all V tokens (paper 5.4).

    Written out, logsumexp(z) - (1 - e) z[label] - e mean(z), with the gradient
    softmax(z) - e / V - (1 - e) [label]: no one-hot tensor is made in either direction.

    Args:
        labels: integer [B, T], or [B].
        logits: floating [B, T, V], or [B, V]; computed in float32.
        label_smoothing: e in [0, 1).
        first_label: the label that column 0 of the logits stands for.
        scatter: False compares every column with the label instead, for the same gradient.

    Returns:
        float32 of the shape of `labels`, in nats.
    """
    vocab_size = logits.shape[-1]

    @ops.custom_gradient
    def cross_entropy(logits):
        probabilities, log_sum, _, label_logits = softmax_statistics(
            labels, logits, first_label
        )
        smooth = (1 - label_smoothing) * label_logits
        if label_smoothing:
            smooth = smooth + label_smoothing * ops.mean(logits, axis=-1)

        def gradient(upstream):
            scale = upstream[..., None]
            grad = (probabilities - label_smoothing / vocab_size) * scale
            positions = _label_positions(labels, vocab_size, first_label)
            at_label = ops.take(ops.reshape(probabilities, (-1,)), positions) - (
                1 - label_smoothing + label_smoothing / vocab_size
            )
            at_label = at_label * ops.reshape(upstream, (-1,))
            if not scatter:
                at_label = ops.reshape(at_label, ops.shape(labels))[..., None]
                return ops.where(
                    _label_columns(labels, vocab_size, first_label), at_label, grad
                )
            flat = ops.reshape(grad, (-1,))
            flat = ops.scatter_update(flat, positions[:, None], at_label)
            return ops.reshape(flat, ops.shape(logits))

        return log_sum - smooth, gradient

    return cross_entropy(ops.cast(logits, "float32"))


def token_weights(labels, sample_weight=None):
    """What each label counts: 0 for padding, else 1 or its sample weight, [B] or [B, T].

    Returns:
        float32 of the shape of `labels`, [B, T] or [B].
    """
    weights = ops.cast(padding_mask(labels), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    if len(sample_weight.shape) < len(weights.shape):
        sample_weight = sample_weight[:, None]
    return weights * sample_weight


@keras.saving.register_keras_serializable(package="tf_transformer")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """The sum of the smoothed cross-entropy over real tokens, divided by their number.

    Padding is where the label is 0. A sample weight, [B] or [B, T], multiplies a token's loss
    and its count.

    Args:
        label_smoothing: 0.1 in the paper.
        first_label: the label that column 0 of the logits stands for: 0 for tokens, 1 for
            classes, which have no column for padding.
        scatter: False computes the gradient without TensorFlow's scatter, which a GPU leaves
            to the CPU where `enable_op_determinism` was called. The values are the same.
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        name: str = "loss",
        first_label: int = 0,
        scatter: bool = True,
        **kwargs,
    ):
        # "sum" is the one reduction that Keras leaves unscaled under a distribution strategy.
        super().__init__(name=name, **(kwargs | {"reduction": "sum"}))
        self.label_smoothing = label_smoothing
        self.first_label = first_label
        self.scatter = scatter

    def __call__(self, y_true, y_pred, sample_weight=None):
        weights = token_weights(y_true, sample_weight)
        total = self.weighted_sum(y_true, y_pred, weights)
        return total / ops.maximum(ops.sum(weights), 1e-9)

    def weighted_sum(self, labels, logits, weights):
        """The sum of the tokens' losses times `weights` [B, T]."""
        losses = smoothed_cross_entropy(
            labels, logits, self.label_smoothing, self.first_label, self.scatter
        )
        return ops.sum(losses * weights)

    def get_config(self):
        names = ("label_smoothing", "first_label", "scatter")
        return super().get_config() | {name: getattr(self, name) for name in names}
