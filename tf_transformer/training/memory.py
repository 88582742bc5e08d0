"""Estimate of the memory that a training step needs."""

from dataclasses import dataclass

from tf_transformer.config import Config, ModelConfig
from tf_transformer.config.training import LOGIT_ROWS

BYTES = 4  # per float32
PROCESS_BYTES = 900_000_000  # Python, TensorFlow and the graph, before the first tensor


@dataclass(frozen=True)
class _Coefficients:
    """Counts of float32 values held at the peak of a step, fitted by least squares.

    A layer is an encoder layer and a decoder layer together.

    Attributes:
        parameter: per parameter: weight, gradient, Adam's two moments, and a half for casts
            and for the gradient of the tied embedding, which is a sum of two.
        width: per position, layer and unit of D.
        inner: per position, layer and unit of F.
        score: per position, layer, head and attended position, for all three attentions.
        logit: per target position and piece.
    """

    parameter: float
    width: float
    inner: float
    score: float
    logit: float


# Mixed precision saves less than half: the loss, the norms and the softmaxes compute in
# float32, and both copies are held.
_FLOAT32 = _Coefficients(parameter=4.5, width=36, inner=3.0, score=3.3, logit=2.3)
_MIXED = _Coefficients(parameter=4.5, width=31, inner=2.0, score=4.7, logit=2.7)

# Added to `inner`: swish keeps its input too. 2.4 and 3.0 were measured, in float32.
_SWISH = 2.5

# Added to `inner` and to `score` by dropout inside feed-forward networks and attention, which
# keeps a mask and the product. Measured: 3.6 and 4.0, 4.2 and 6.4.
_ACTIVATION_DROPOUT, _ATTENTION_DROPOUT = 4.0, 6.0

# An encoder layer's share of an encoder and a decoder layer together: it has one of the three
# attentions. For three configurations (D 256 and 512, 4 layers, 64 x 32 and 32 x 128 positions,
# one of them in mixed_bfloat16) the estimate was 1.03, 1.07 and 1.10 times the process's peak.
_ENCODER_SHARE = 0.3

# Values held per weight of the output projection: the sum of its gradients over the chunks of
# logits, and the gradient of one chunk.
_PROJECTION = 2.0

# Added to `parameter` if gradients are summed over parts: the sums before and after a part, and
# copies made by the loop. Five measurements of small, base and big gave 3.4 to 6.
_PARTS = 4.0


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes on one device at the peak of a step.

    Attributes:
        parameters: weights, gradients and Adam's moments.
        layers: tensors that encoder and decoder keep for the backward pass.
        logits: logits, loss and their gradient, by far the largest tensors.
        rows, length: shape of the batch, per device and part.
    """

    parameters: int
    layers: int
    logits: int
    rows: int
    length: int

    @property
    def total(self) -> int:
        """Sum of all components."""
        return self.parameters + self.layers + self.logits

    def __str__(self) -> str:
        return (
            f"{gigabytes(self.total)} for a batch of {self.rows} x {self.length}: parameters "
            f"{gigabytes(self.parameters)}, layers {gigabytes(self.layers)}, logits "
            f"{gigabytes(self.logits)}"
        )


def estimate_memory(
    config: Config,
    rows: int,
    length: int,
    *,
    replicas: int = 1,
    positions: int | None = None,
    encoder_outputs: int = 0,
) -> MemoryEstimate:
    """Estimates the peak memory of a training step with Adam, without `PROCESS_BYTES`.

    The coefficients were fitted to the peak resident memory of 39 configurations (V 1,000 to
    37,000, D 128 to 768, 1 to 6 layers, batches of 512 to 4,096 positions, float32 and
    mixed_bfloat16) on a CPU with TensorFlow 2.21 and Keras's Adam. `tools/memory_peaks`
    compares the estimate and `PROCESS_BYTES` with peaks of the presets. No GPU was measured.

    Args:
        config: the model, and its precision, moving average and recomputation in training.
        rows: rows of a step's batch, which is [rows, length] on both sides.
        length: length of its rows.
        replicas: devices that share the rows.
        positions: `max_tokens_per_device`: a device computes a larger share in equal parts and
            adds up the gradients; None for whole batches.
        encoder_outputs: see `training.task.Task`.

    Raises:
        ValueError: if a number is below 1.
    """
    if min(rows, length, replicas, 1 if positions is None else positions) < 1:
        raise ValueError(
            "`rows`, `length`, `replicas` and `positions` must be at least 1. Received: "
            f"{rows}, {length}, {replicas}, {positions}."
        )
    model, training = config.model, config.training
    per = _FLOAT32 if training.precision == "float32" else _MIXED
    rows = -(-rows // replicas)
    copies = per.parameter + (training.ema_decay > 0)
    if positions is not None:
        rows = -(-rows // -(-rows // max(1, positions // length)))  # equal parts
        copies += _PARTS
    depths = model.num_layers, 0 if encoder_outputs else model.num_decoder_layers
    layer = _layer_numbers(model, length, per)
    kinds = _ENCODER_SHARE * layer, (1 - _ENCODER_SHARE) * layer
    layers = sum(depth * numbers for depth, numbers in zip(depths, kinds, strict=True))
    if training.recompute:  # only the layers' inputs are kept; one layer is held whole
        layers = sum(depths) * model.d_model + kinds[0] + bool(depths[1]) * kinds[1]
    return MemoryEstimate(
        parameters=int(BYTES * copies * parameter_count(model, encoder_outputs)),
        layers=int(BYTES * rows * length * layers),
        logits=int(BYTES * _logit_numbers(model, rows, length, per.logit, encoder_outputs)),
        rows=rows,
        length=length,
    )


def _logit_numbers(
    model: ModelConfig, rows: int, length: int, copies: float, encoder_outputs: int
) -> float:
    """Counts the values held for a chunk of logits and for the gradients of their kernel."""
    if encoder_outputs:
        return copies * rows * encoder_outputs
    positions = min(rows * length, LOGIT_ROWS)
    return model.vocab_size * (copies * positions + _PROJECTION * model.d_model)


def _layer_numbers(model: ModelConfig, length: int, per: _Coefficients) -> float:
    """Counts the values held per position by an encoder and a decoder layer together."""
    # D, or the width of all heads together if that is larger.
    width = max(model.d_model, model.num_heads * max(_head_sizes(model)))
    inner = per.inner + _SWISH * (model.activation == "swish")
    inner += _ACTIVATION_DROPOUT * bool(model.activation_dropout)
    score = per.score + _ATTENTION_DROPOUT * bool(model.attention_dropout)
    return per.width * width + inner * model.d_ff + score * model.num_heads * length


def parameter_count(model: ModelConfig, encoder_outputs: int = 0) -> int:
    """Counts the parameters of a model (paper 3.2.2, 3.3 and 3.4) without building it.

    The model is a `Transformer`, or with `encoder_outputs` an encoder with that many outputs.
    """
    d_model, heads = model.d_model, model.num_heads
    key_dim, value_dim = _head_sizes(model)
    attention = 2 * d_model * heads * (key_dim + value_dim)
    if model.attention_bias:
        attention += heads * (2 * key_dim + value_dim) + d_model
    feed_forward = 2 * d_model * model.d_ff + model.d_ff + d_model
    norm = 2 * d_model
    positions = model.max_length * d_model if model.positions == "learned" else 0
    encoder = model.num_layers * (attention + feed_forward + 2 * norm)
    encoder += model.norm_first * norm
    if encoder_outputs:
        embedding = model.vocab_size * d_model + positions
        return embedding + encoder + (d_model + 1) * encoder_outputs
    decoder = model.num_decoder_layers * (2 * attention + feed_forward + 3 * norm)
    decoder += model.norm_first * norm
    tables, position_tables = (1, 1) if model.tie_embeddings else (3, 2)
    embeddings = (tables * d_model + model.output_bias) * model.vocab_size
    return embeddings + position_tables * positions + encoder + decoder


def _head_sizes(model: ModelConfig) -> tuple[int, int]:
    """Returns the sizes per head of keys and values."""
    default = model.d_model // model.num_heads
    return model.key_dim or default, model.value_dim or default


def gigabytes(count: int) -> str:
    """Formats bytes as "0.65 GB" or "12 GB"."""
    return f"{count / 1e9:.2g} GB" if count < 1e10 else f"{count / 1e9:.0f} GB"
