"""The architecture of the model (paper 3)."""

from dataclasses import dataclass

from tf_transformer.config.settings import MAX_TOKENS, require, require_allowed, setting
from tf_transformer.errors import UserError

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3

# Gain of the query, key and value kernels: as if they were one Xavier kernel [D, 3 D].
DEFAULT_GAIN = 2**-0.5


# fmt: off
@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The architecture (paper 3), with the paper's base model as defaults."""

    vocab_size: int = setting(
        37_000, low=EOS_ID + 2, high=1_000_000, help="V, shared by source and target")
    num_layers: int = setting(
        6, low=1, high=1_000, help="N, layers in the encoder, and in the decoder by default")
    decoder_layers: int | None = setting(
        None, low=1, high=1_000, help="layers in the decoder; num_layers if None")
    d_model: int = setting(
        512, low=1, high=65_536, help="D, the width of every sublayer's output; even")
    d_ff: int = setting(
        2048, low=1, high=1_000_000, help="F, the inner width of the feed-forward networks")
    num_heads: int = setting(
        8, low=1, high=65_536, help="H, attention heads per sublayer")
    key_dim: int | None = setting(
        None, low=1, high=65_536,
        help="K, the width of a head's queries and keys; d_model / num_heads if None")
    value_dim: int | None = setting(
        None, low=1, high=65_536,
        help="width of a head's values; d_model / num_heads if None")
    dropout: float = setting(
        0.1, low=0, below=1, help="rate on sublayer outputs and on embeddings plus positions")
    attention_dropout: float = setting(
        0.0, low=0, below=1, help="rate on attention weights; the paper has none there")
    activation_dropout: float = setting(
        0.0, low=0, below=1,
        help="rate after the activation of feed-forward networks; the paper has none there")
    norm_first: bool = setting(
        False, help="pre-LN, with a final norm on both stacks, instead of the paper's post-LN")
    positions: str = setting(
        "sinusoidal", choices=("sinusoidal", "learned"),
        help="positional encodings added to the embeddings")
    tie_embeddings: bool = setting(
        True, help="one matrix for both embeddings and the output projection (paper 3.4)")
    max_length: int = setting(
        1024, low=1, high=MAX_TOKENS, help="longest input if positions are learned")
    source_positions: int | None = setting(
        None, low=1, high=MAX_TOKENS,
        help="learned positions that sources have trained, set by training; max_length if None")
    target_positions: int | None = setting(
        None, low=1, high=MAX_TOKENS,
        help="learned positions that targets have trained, set by training; max_length if None")
    attention_bias: bool = setting(
        False, help="biases in the projections of attention; the paper has none")
    output_bias: bool = setting(
        False, help="a bias added to the logits; the paper has none")
    activation: str = setting(
        "relu", choices=("relu", "swish"), help="activation of the feed-forward networks")
    norm_epsilon: float = setting(
        1e-6, above=0, high=1, help="added to the variance in every layer norm")
    query_key_gain: float = setting(
        DEFAULT_GAIN, above=0, high=100,
        help="gain of the Xavier uniform initialisation of query and key kernels")
    value_gain: float = setting(
        DEFAULT_GAIN, above=0, high=100,
        help="gain of the Xavier uniform initialisation of value kernels")
    # fmt: on

    @property
    def num_decoder_layers(self) -> int:
        """The number of layers in the decoder."""
        return self.decoder_layers or self.num_layers

    @property
    def longest_source(self) -> int | None:
        """The longest source that the positions allow, in tokens; None for no limit."""
        return self._longest(self.source_positions)

    @property
    def longest_target(self) -> int | None:
        """The longest target that the positions allow, in tokens; None for no limit."""
        return self._longest(self.target_positions)

    def _longest(self, trained: int | None) -> int | None:
        if self.positions != "learned":
            return None
        return min(self.max_length, trained or self.max_length)

    def __post_init__(self) -> None:
        require_allowed(self, "model.")
        require(self.d_model % 2 == 0, "model.d_model", "even", self.d_model)
        if self.d_model % self.num_heads and None in (self.key_dim, self.value_dim):
            raise UserError(
                "`model.num_heads` must divide `model.d_model`, unless key_dim and value_dim "
                f"are given. Received: num_heads={self.num_heads}, d_model={self.d_model}."
            )
