"""The cost of training, beside the paper's figures (Table 2)."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tf_transformer.base.architecture import POSITION_KINDS
from tf_transformer.config import ModelConfig

if TYPE_CHECKING:  # `--help` waits for no NumPy
    import numpy as np

# Table 2: training cost of English-German in floating-point operations.
TABLE2_FLOPS = {"base": 3.3e18, "big": 2.3e19}

# Footnote 5: sustained TFLOP/s of one GPU, which the paper multiplies by the training time.
SUSTAINED_TFLOPS = {"K80": 2.8, "K40": 3.7, "M40": 6.0, "P100": 9.5}

# A multiplication and an addition; once forward, twice backward (for the inputs and the weights
# of a product): Kaplan et al. 2020, section 2.1 (arXiv 2001.08361).
_PER_PRODUCT = 2 * 3


@dataclass(frozen=True)
class Lengths:
    """Sums over the sentence pairs of an epoch, in tokens.

    S and T count the positions of encoder and decoder, including EOS.
    """

    source: int  # sum of S
    target: int  # sum of T
    # Positions that self-attention compares: in the encoder S^2, or with a window each block of
    # its size with three blocks; in the decoder T^2, or each block with two.
    source_pairs: int
    target_pairs: int
    both: int  # sum of S T

    @classmethod
    def of(cls, source: "np.ndarray", target: "np.ndarray", window: int = 0) -> "Lengths":
        """Sums the lengths of the pairs, two arrays of integers [pairs]."""
        s, t = source.astype("int64"), target.astype("int64")
        pairs = _compared(s, window, 3), _compared(t, window, 2)
        return cls(int(s.sum()), int(t.sum()), *pairs, int(s @ t))


def _compared(lengths: "np.ndarray", window: int, blocks: int) -> int:
    if not window:
        return int(lengths @ lengths)
    size = lengths.clip(max=window)
    return int((-(-lengths // size) * blocks * size**2).sum())


def _inner_projections(model: ModelConfig) -> int:
    return 2 if model.activation in ("swiglu", "geglu") else 1


def parameter_count(model: ModelConfig) -> int:
    """Counts the parameters of a `Transformer` (paper 3.2.2, 3.3 and 3.4), not building it."""
    d_model, heads = model.d_model, model.num_heads
    key_dim, value_dim = model.head_sizes
    attention = 2 * d_model * heads * (key_dim + value_dim)
    if model.attention_bias:
        attention += heads * (2 * key_dim + value_dim) + d_model
    inner = _inner_projections(model)
    feed_forward = (inner + 1) * d_model * model.d_ff + inner * model.d_ff + d_model
    norm = {"layer": 2, "rms": 1}[model.norm] * d_model
    positions = model.max_length * d_model if model.positions_are_limited else 0
    distances = POSITION_KINDS[model.positions].distance_vectors * (key_dim + value_dim)
    encoder = model.num_layers * (attention + distances + feed_forward + 2 * norm)
    encoder += model.norm_first * norm
    decoder = model.num_decoder_layers * (2 * attention + distances + feed_forward + 3 * norm)
    decoder += model.norm_first * norm
    tables, position_tables = (1, 1) if model.tie_embeddings else (3, 2)
    embeddings = (tables * d_model + model.output_bias) * model.vocab_size
    return embeddings + position_tables * positions + encoder + decoder


def training_flops(model: ModelConfig, lengths: Lengths) -> int:
    """Returns the FLOPs of training on each sentence pair once, without padding.

    Counts the matrix products, forward and backward, in the paper's notation (3.2.2, 3.3),
    where K and V are the sizes of key and value per head:

        encoder layer:  a source position  2 D H (K + V)       self-attention
                                           2 D F               feed-forward network, 3 D F
                                                               if it is gated
                        a pair             H (K + V) S^2       attention weights, twice if
                                                               positions are relative
        decoder layer:  a target position  3 D H (K + V)       attentions, but for
                        a source position  D H (K + V)         keys, values of the memory
                        a target position  2 D F               feed-forward network
                        a pair             H (K + V) (T^2 + S T)
        once:           a target position  D |V|               pre-softmax projection

    Each term is a multiplication and an addition, and three times that with the backward pass.
    Embeddings, norms, biases, softmax, loss and Adam are not counted.
    The decoder's self-attention is counted in full, as it is computed, though half is masked;
    with a window, S^2 and T^2 are the pairs that its blocks compare (see `Lengths`).
    """
    heads = model.num_heads * sum(model.head_sizes)
    feed_forward = (_inner_projections(model) + 1) * model.d_model * model.d_ff
    projections = model.d_model * heads
    own = heads * (2 if POSITION_KINDS[model.positions].distance_vectors else 1)
    encoder = (2 * projections + feed_forward) * lengths.source + own * lengths.source_pairs
    decoder = (3 * projections + feed_forward) * lengths.target + projections * lengths.source
    decoder += own * lengths.target_pairs + heads * lengths.both
    layers = model.num_layers * encoder + model.num_decoder_layers * decoder
    return _PER_PRODUCT * (layers + model.d_model * model.vocab_size * lengths.target)


@dataclass(frozen=True)
class Cost:
    """The cost of a run up to an update."""

    step: int  # number of the update
    target_tokens: int  # seen, including EOS but not padding
    seconds: float  # of training, without evaluations
    counted: float | None  # FLOPs, from the model; None if the lengths of its data are lost


def costs(
    history: Iterable[dict[str, Any]],
    model: ModelConfig,
    lengths: Lengths | None,
) -> list[Cost]:
    """Returns the cost up to each evaluation, from the records of `Run.history`.

    `lengths` are those of an epoch of training data, None if they are lost.
    """
    tokens = seconds = 0.0
    results = []
    for record in history:
        seconds += record["train_seconds"]
        tokens += record["tokens_per_second"] * record["train_seconds"]
        flops = None if lengths is None else (
            training_flops(model, lengths) * tokens / lengths.target
        )  # fmt: skip
        results.append(Cost(record["step"], round(tokens), seconds, flops))
    return results
