"""Loss and metrics over real tokens (paper 5.4), and the learning rate (paper 5.3)."""

import keras
from keras import ops

from tf_transformer.fast.cross_entropy import smoothed_cross_entropy, softmax_statistics
from tf_transformer.fast.keras_hooks import share_of_replica
from tf_transformer.layers.attention import padding_mask
from tf_transformer.layers.feed_forward import require_positive

# --- Loss --------------------------------------------------------------------------------


def labels_of(logits, labels):
    """Returns the labels of logits [B, T, V] as [B, T], without a trailing axis of size 1.

    Logits [B, V] have labels [B]. Raises ValueError if the labels have another rank, or a
    size that is known to differ.
    """
    rank = len(logits.shape) - 1
    if len(labels.shape) == rank + 1 and labels.shape[-1] in (1, None):  # a column of a table
        labels = ops.squeeze(labels, -1)
    if len(labels.shape) != rank:
        raise ValueError(
            f"Logits {tuple(logits.shape)} need one label for each row of logits: labels of "
            f"rank {rank}. Received: labels {tuple(labels.shape)}."
        )
    for size, expected in zip(labels.shape, logits.shape, strict=False):
        if None not in (size, expected) and size != expected:
            raise ValueError(
                f"Logits {tuple(logits.shape)} need labels of the same rows and length, as "
                "many as positions of the target that was fed. "
                f"Received: labels {tuple(labels.shape)}."
            )
    return labels


def token_weights(labels, sample_weight=None):
    """Computes each label's weight in float32: 0 for padding, else 1 or its sample weight.

    Labels are [B, T] or [B]; sample weights [B], or of the labels' shape, optionally with a
    trailing axis of size 1.
    """
    weights = ops.cast(padding_mask(labels), "float32")
    if sample_weight is None:
        return weights
    sample_weight = ops.cast(sample_weight, "float32")
    if getattr(sample_weight.shape, "rank", 1) is None:  # `fit` has seen both [B] and [B, T]
        sample_weight = ops.reshape(sample_weight, (ops.shape(labels)[0], -1))
    if len(sample_weight.shape) < len(weights.shape):
        sample_weight = sample_weight[:, None]
    elif len(sample_weight.shape) > len(weights.shape):  # a column of a table
        sample_weight = ops.squeeze(sample_weight, -1)
    return weights * sample_weight


def _without_first_label(config):
    """Returns a configuration without what 1.1.0 had for models of classes; 0 for tokens."""
    return {name: value for name, value in config.items() if name != "first_label"}


@keras.saving.register_keras_serializable(package="tf_transformer")
class LabelSmoothedCrossEntropy(keras.losses.Loss):
    """Mean label-smoothed cross-entropy over real tokens.

    Labels are [B, T], or a column [B, T, 1]; 0 is padding. A sample weight, [B] or [B, T],
    multiplies a token's loss and its contribution to the count.

    Args:
        label_smoothing: in [0, 1); 0.1 in the paper.
        scatter: False computes the same gradient without TensorFlow's scatter, which a GPU
            leaves to the CPU under `enable_op_determinism`.

    A label without a column in the logits makes the loss NaN.

    Raises:
        ValueError: if `label_smoothing` is out of range; for a `reduction` other than "sum",
            the value in `get_config`: the result is always the mean; in a call, if labels and
            logits do not match.

    Example:
        >>> loss, logits = LabelSmoothedCrossEntropy(0.1), keras.ops.zeros((1, 3, 10))
        >>> round(float(loss(keras.ops.array([[5, 3, 0]]), logits)), 4)  # ln 10
        2.3026
    """

    def __init__(
        self,
        label_smoothing: float = 0.1,
        name: str = "loss",
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
        self.scatter = scatter

    def __call__(self, y_true, y_pred, sample_weight=None):
        y_true = labels_of(y_pred, y_true)
        weights = token_weights(y_true, sample_weight)
        total = self.weighted_sum(y_true, y_pred, weights)
        return share_of_replica(total / ops.maximum(ops.sum(weights), 1e-9))

    def weighted_sum(self, labels, logits, weights):
        """Returns the sum of the tokens' losses times `weights` [B, T]."""
        losses = smoothed_cross_entropy(labels, logits, self.label_smoothing, self.scatter)
        return ops.sum(losses * weights)

    def get_config(self):
        names = ("label_smoothing", "scatter")
        return super().get_config() | {name: getattr(self, name) for name in names}

    @classmethod
    def from_config(cls, config):
        return super().from_config(_without_first_label(config))


# --- Metrics -----------------------------------------------------------------------------


def full_precision(dtype=None) -> str:
    """Returns `dtype` (`floatx` if None), or float32 if that is more precise.

    float16 overflows beyond 65,504 tokens, and bfloat16 cannot count beyond 256.
    """
    return keras.backend.result_type(dtype or keras.config.floatx(), "float32")


class TokenMean(keras.metrics.Metric):
    """Mean of a per-token value over all real tokens seen since the last reset."""

    default_name: str

    def __init__(self, name: str | None = None, dtype=None, **kwargs):
        super().__init__(name=name or self.default_name, dtype=full_precision(dtype), **kwargs)
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

    @classmethod
    def from_config(cls, config):
        return super().from_config(_without_first_label(config))


@keras.saving.register_keras_serializable(package="tf_transformer")
class Perplexity(TokenMean):
    """Exponential of the mean negative log-likelihood per token, never smoothed (Table 3).

    Example:
        >>> perplexity = Perplexity()
        >>> perplexity.update_state(keras.ops.array([[5, 3, 0]]), keras.ops.zeros((1, 3, 10)))
        >>> round(float(perplexity.result()), 4)
        10.0
    """

    default_name = "perplexity"

    def token_values(self, labels, logits):
        _, log_sum, _, label_logits = softmax_statistics(labels, logits)
        return log_sum - label_logits

    def result(self):
        return ops.exp(super().result())


@keras.saving.register_keras_serializable(package="tf_transformer")
class TokenAccuracy(TokenMean):
    """Fraction of real tokens whose label has the highest logit, alone or tied.

    Example:
        >>> accuracy, best = TokenAccuracy(), keras.ops.array([[5, 7, 0]])
        >>> accuracy.update_state(keras.ops.array([[5, 3, 0]]), keras.ops.one_hot(best, 10))
        >>> float(accuracy.result())
        0.5
    """

    default_name = "accuracy"

    def token_values(self, labels, logits):
        # The loss computes the maximum and the label's logit anyway; an argmax would be extra.
        _, _, maximum, label_logits = softmax_statistics(labels, logits)
        return ops.cast(label_logits >= maximum, "float32")


@keras.saving.register_keras_serializable(package="tf_transformer")
class TokenCount(TokenMean):
    """Number of real target tokens since the last reset, each times its sample weight.

    Example:
        >>> tokens = TokenCount()
        >>> tokens.update_state(keras.ops.array([[5, 3, 0]]), keras.ops.zeros((1, 3, 10)))
        >>> float(tokens.result())
        2.0
    """

    default_name = "tokens"

    def token_values(self, labels, logits):
        return ops.ones_like(labels, "float32")

    def result(self):
        return self.total + 0.0


# --- Learning rate (equation 3) ----------------------------------------------------------


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

    Raises:
        ValueError: if `d_model` or `warmup_steps` is below 1.

    Example:
        >>> rate = TransformerSchedule(d_model=512)
        >>> f"{float(rate(3_999)):.1e}"  # of the 4,000th update, the largest
        '7.0e-04'
    """

    def __init__(
        self, d_model: int, warmup_steps: int = 4_000, scale: float = 1.0, start: int = 0
    ):
        require_positive(d_model=d_model, warmup_steps=warmup_steps)
        self.d_model = d_model
        self.warmup_steps = warmup_steps
        self.scale = scale
        self.start = start

    def __call__(self, step):
        step = ops.cast(step, "float32") + (self.start + 1.0)
        decay = ops.minimum(step**-0.5, step * self.warmup_steps**-1.5)
        return self.scale * self.d_model**-0.5 * decay

    def get_config(self):
        names = ("d_model", "warmup_steps", "scale", "start")
        return {name: getattr(self, name) for name in names}
