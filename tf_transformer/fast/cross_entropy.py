"""Label-smoothed cross-entropy (paper 5.4) with its gradient written out.

The plain twin, one-hot targets and automatic differentiation, is in
`tests/fast/test_cross_entropy.py`.
"""

from keras import ops


def softmax_statistics(labels, logits, first_label: int = 0):
    """Statistics of the logits for loss and metrics, which share them in a graph.

    Args:
        labels: integer [B, T], or [B].
        logits: float32 [B, T, V], or [B, V].
        first_label: the label of column 0 of the logits.

    Returns:
        The softmax [B, T, V]; the logarithm of the sum of exp(logits), the maximum and the
        label's logit, [B, T] each; without T where `labels` have none.
    """
    # One operation; exponentials and their sum would be three more over all logits.
    probabilities = ops.softmax(logits, axis=-1)
    maximum = ops.max(logits, axis=-1)
    # The largest probability cannot underflow.
    log_sum = maximum - ops.log(ops.max(probabilities, axis=-1))
    vocab_size = logits.shape[-1]
    positions = _label_positions(labels, vocab_size, first_label)
    label_logits = ops.take(ops.reshape(logits, (-1,)), positions)
    return probabilities, log_sum, maximum, ops.reshape(label_logits, ops.shape(labels))


def _label_positions(labels, vocab_size: int, first_label: int):
    """Positions of the labels' logits in a flat [B * T * V], which can exceed 2^31: int64."""
    flat_labels = ops.reshape(ops.cast(labels, "int64"), (-1,))
    if first_label:
        flat_labels = ops.maximum(flat_labels - first_label, 0)  # padding: any column
    rows = ops.arange(ops.size(flat_labels), dtype="int64")
    return rows * vocab_size + flat_labels


def _label_columns(labels, vocab_size: int, first_label: int):
    """Marks the label's column: [B, T, V]."""
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
        first_label: the label of column 0 of the logits.
        scatter: False compares every column with the label instead, for the same gradient.

    Returns:
        float32 of the shape of `labels`, in nats.
    """

    @ops.custom_gradient
    def cross_entropy(logits):
        probabilities, log_sum, _, label_logits = softmax_statistics(
            labels, logits, first_label
        )
        smooth = (1 - label_smoothing) * label_logits
        if label_smoothing:
            smooth = smooth + label_smoothing * ops.mean(logits, axis=-1)

        def gradient(upstream):
            return _gradient(
                labels, probabilities, upstream, label_smoothing, first_label, scatter
            )

        return log_sum - smooth, gradient

    return cross_entropy(ops.cast(logits, "float32"))


def _gradient(labels, probabilities, upstream, label_smoothing, first_label, scatter):
    """Returns the gradient of the logits: `upstream` [B, T] -> [B, T, V]."""
    vocab_size = probabilities.shape[-1]
    grad = (probabilities - label_smoothing / vocab_size) * upstream[..., None]
    positions = _label_positions(labels, vocab_size, first_label)
    at_label = ops.take(ops.reshape(probabilities, (-1,)), positions) - (
        1 - label_smoothing + label_smoothing / vocab_size
    )
    at_label = at_label * ops.reshape(upstream, (-1,))
    if not scatter:
        at_label = ops.reshape(at_label, ops.shape(labels))[..., None]
        return ops.where(_label_columns(labels, vocab_size, first_label), at_label, grad)
    flat = ops.scatter_update(ops.reshape(grad, (-1,)), positions[:, None], at_label)
    return ops.reshape(flat, ops.shape(probabilities))
