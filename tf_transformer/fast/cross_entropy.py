"""Label-smoothed cross-entropy (paper 5.4) with an explicit gradient."""

from keras import ops


def softmax_statistics(labels, logits):
    """Computes the statistics of float32 logits that loss and metrics share in a graph.

    Returns the softmax [B, T, V]; then logsumexp(logits), the maximum and the label's logit,
    all [B, T]. The logit of a label without a column is NaN.
    """
    # One operation over all logits; computing exponentials and their sum would add three.
    probabilities = ops.softmax(logits, axis=-1)
    maximum = ops.max(logits, axis=-1)
    # The largest probability cannot underflow.
    log_sum = maximum - ops.log(ops.max(probabilities, axis=-1))
    vocab_size = logits.shape[-1]
    positions = _label_positions(labels, vocab_size)
    label_logits = ops.take(ops.reshape(logits, (-1,)), positions)
    label_logits = ops.reshape(label_logits, ops.shape(labels))
    known = ops.logical_and(labels >= 0, labels < vocab_size)
    return probabilities, log_sum, maximum, ops.where(known, label_logits, float("nan"))


def _label_positions(labels, vocab_size: int):
    """Returns the labels' indices in flat logits [B * T * V], which can exceed 2^31: int64."""
    flat_labels = ops.reshape(ops.cast(labels, "int64"), (-1,))
    # Padding, and a label without a column, take some column of their own row.
    flat_labels = ops.clip(flat_labels, 0, vocab_size - 1)
    rows = ops.arange(ops.size(flat_labels), dtype="int64")
    return rows * vocab_size + flat_labels


def smoothed_cross_entropy(labels, logits, label_smoothing: float, scatter: bool = True):
    """Computes cross-entropy with 1 - e on the label and e spread over V tokens (paper 5.4).

    The loss is logsumexp(z) - (1 - e) z[label] - e mean(z), and its gradient
    softmax(z) - e / V - (1 - e) onehot(label). Neither pass builds a one-hot tensor.

    Without `scatter`, the same gradient is computed by comparing every column with the label.
    Returns float32 of the shape of `labels`, in nats.
    """

    @ops.custom_gradient
    def cross_entropy(logits):
        probabilities, log_sum, _, label_logits = softmax_statistics(labels, logits)
        smooth = (1 - label_smoothing) * label_logits
        if label_smoothing:
            smooth = smooth + label_smoothing * ops.mean(logits, axis=-1)

        def gradient(upstream):
            return _gradient(labels, probabilities, upstream, label_smoothing, scatter)

        return log_sum - smooth, gradient

    return cross_entropy(ops.cast(logits, "float32"))


def _gradient(labels, probabilities, upstream, label_smoothing, scatter):
    """Returns the gradient with respect to the logits: `upstream` [B, T] -> [B, T, V]."""
    vocab_size = probabilities.shape[-1]
    grad = (probabilities - label_smoothing / vocab_size) * upstream[..., None]
    positions = _label_positions(labels, vocab_size)
    at_label = ops.take(ops.reshape(probabilities, (-1,)), positions) - (
        1 - label_smoothing + label_smoothing / vocab_size
    )
    at_label = at_label * ops.reshape(upstream, (-1,))
    if not scatter:
        at_label = ops.reshape(at_label, ops.shape(labels))[..., None]
        columns = ops.maximum(ops.cast(labels, "int32"), 0)[..., None]
        is_label = ops.equal(columns, ops.arange(vocab_size, dtype="int32"))  # [B, T, V]
        return ops.where(is_label, at_label, grad)
    flat = ops.scatter_update(ops.reshape(grad, (-1,)), positions[:, None], at_label)
    return ops.reshape(flat, ops.shape(probabilities))
