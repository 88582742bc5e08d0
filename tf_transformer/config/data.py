"""The text of a run and its tokenizer (paper 5.1)."""

from dataclasses import dataclass

from tf_transformer.config.settings import (
    MAX_FLOAT,
    MAX_TOKENS,
    require,
    require_allowed,
    setting,
)

# How a tokenizer rewrites text before splitting it; the first is the default of a new one.
NORMALIZATIONS = ("identity", "nfc", "nfkc", "nmt_nfkc")


# fmt: off
@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text; without `tokenizer` one of `model.vocab_size` pieces is trained on it.

    Pairs filtered by `max_length` and `max_ratio` are missing from training and the dev loss;
    dev BLEU is measured on all pairs.
    """

    train: tuple[str, ...] = setting(
        (), help="training text: prefixes of PREFIX.LANG[.gz], or files of one-sided tasks")
    valid: tuple[str, ...] = setting((), help="dev text, likewise")
    source: str = setting("", help="language to translate from, the suffix of its files")
    target: str = setting("", help="language to translate to")
    tokenizer: str = setting(
        "", help="path of an existing SentencePiece model; empty trains one on both languages")
    tokenizer_kind: str = setting(
        "bpe", choices=("bpe", "unigram"), help="algorithm of a new tokenizer")
    normalization: str | None = setting(
        None, choices=NORMALIZATIONS, help="how a new tokenizer rewrites text; None: identity")
    character_coverage: float = setting(  # SentencePiece's bounds
        1.0, low=0.98, high=1.0,
        help="share of all characters that a new tokenizer has pieces for; others become bytes")
    max_length: int = setting(
        256, low=8, high=MAX_TOKENS, help="longest side of a training pair, in tokens with EOS")
    max_ratio: float = setting(
        4.0, low=1, high=MAX_FLOAT, help="largest ratio of the sides of a training pair")
    # fmt: on

    def __post_init__(self) -> None:
        require_allowed(self, "data.")
        if self.tokenizer:
            left_out = "left out with `data.tokenizer`, which holds its own"
            for name, default in {"normalization": None, "character_coverage": 1}.items():
                value = getattr(self, name)
                require(value == default, f"data.{name}", left_out, value)
