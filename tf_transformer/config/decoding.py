"""Beam search (paper 6.1) and sampling."""

from dataclasses import dataclass
from typing import TypedDict

from tf_transformer.config.settings import (
    MAX_COUNT,
    MAX_TOKENS,
    require,
    require_allowed,
    setting,
)

DECODING_PRECISIONS = (
    "float32",
    "bfloat16",
    "int8",
)  # of a loaded model, whatever it was trained in
MAX_BEAM_SIZE = 1_000
# A larger exponent of the length penalty could overflow.
MAX_ALPHA = 10.0
# Beyond these, logits divided by the temperature soon overflow or become equal.
TEMPERATURES = (0.01, 100.0)


# fmt: off
@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """Beam search (paper 6.1)."""

    beam_size: int = setting(4, low=1, high=MAX_BEAM_SIZE, help="hypotheses kept; 1 is greedy")
    alpha: float = setting(
        0.6, low=0, high=MAX_ALPHA, help="exponent of the length penalty; 0 for none")
    max_extra_length: int = setting(
        50, low=1, high=10_000, help="how many tokens the output may have more than the input")
    max_source_length: int = setting(
        1_024, low=1, high=MAX_TOKENS, help="most input tokens; the rest is cut off")
    checkpoint: str = setting(
        "best", choices=("best", "average", "last"), help="weights used by default")
    batch_tokens: int = setting(
        4_096, low=1, high=MAX_COUNT, help="source tokens times beams in a batch")
    min_length: int = setting(
        0, low=0, high=MAX_TOKENS, help="fewest output tokens, EOS included; 0: off")
    max_length: int = setting(
        0, low=0, high=MAX_TOKENS, help="most output tokens, EOS included; 0: off")
    no_repeat_ngram: int = setting(
        0, low=0, high=100, help="length of the n-grams that may occur only once; 0: off")
    lookahead: int = setting(
        0, low=0, high=MAX_TOKENS,
        help="stop when no better hypothesis could end within this many tokens; 0: exact")
    # fmt: on

    def __post_init__(self) -> None:
        require_allowed(self, "decoding.")
        consistent = self.max_length == 0 or self.max_length >= self.min_length
        expected = f"0 or at least min_length ({self.min_length})"
        require(consistent, "decoding.max_length", expected, self.max_length)


# fmt: off
@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """Sampling of translations, instead of a search for the best."""

    temperature: float = setting(
        1.0, low=TEMPERATURES[0], high=TEMPERATURES[1],
        help="divides the logits: below 1 sharpens the distribution, above 1 flattens it")
    top_k: int = setting(
        0, low=0, high=MAX_COUNT, help="draw from this many most probable tokens; 0: all")
    top_p: float = setting(
        1.0, above=0, high=1, help="of these, the fewest whose probabilities reach this sum")
    seed: int = setting(1, low=0, high=2**32 - 1, help="seed of the random numbers")
    # fmt: on

    def __post_init__(self) -> None:
        require_allowed(self)


class SearchOptions(TypedDict, total=False):
    """Fields of `DecodingConfig` and `SamplingConfig`, as arguments of `translate`."""

    beam_size: int
    alpha: float
    max_extra_length: int
    max_source_length: int
    batch_tokens: int
    min_length: int
    max_length: int
    no_repeat_ngram: int
    lookahead: int
    temperature: float
    top_k: int
    top_p: float
    seed: int
