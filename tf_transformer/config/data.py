"""The text of a run and its tokenizer (paper 5.1)."""

from collections.abc import Sequence
from dataclasses import dataclass

from tf_transformer.config.settings import (
    MAX_FLOAT,
    MAX_TOKENS,
    require,
    require_allowed,
    setting,
)
from tf_transformer.errors import UserError, quoted

# Ways for a tokenizer to rewrite text before splitting it; the first is the default.
NORMALIZATIONS = ("identity", "nfkc", "nmt_nfkc")

# SacreBLEU's tokenisers that need no other package.
BLEU_TOKENIZERS = ("13a", "intl", "zh", "char", "none")


# fmt: off
@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text; without `tokenizer`, one with `model.vocab_size` pieces is trained on it.

    Training and the dev loss leave out pairs beyond `max_length` or `max_ratio`; dev BLEU is
    measured on all pairs.
    """

    train: tuple[str, ...] = setting(
        (), help="training text: prefixes of PREFIX.LANG[.gz] or tables FILE.tsv[.gz], with "
        ":SOURCE-TARGET if their languages differ from the run's; for other tasks, "
        "files of trees or labelled sentences")
    valid: tuple[str, ...] = setting((), help="dev text, in the same form")
    mix: str = setting(
        "", help="weights of the training texts, such as 1:4, or temperature=5; empty: by size")
    tag: tuple[str, ...] = setting(
        (), help="KEY=TAG: text put before each source, by target language or corpus, such as "
        "de=<2de>")
    symbols: tuple[str, ...] = setting(
        (), help="words that a new tokenizer never splits, in addition to one-word tags")
    source: str = setting("", help="language to translate from, the suffix of its files")
    target: str = setting("", help="language to translate to")
    bleu_tokenizer: str = setting(
        "13a", choices=BLEU_TOKENIZERS, help="sacreBLEU's tokeniser for the target text: zh "
        "for Chinese, char for others without blanks between words, none for tokenised text")
    tokenizer: str = setting(
        "", help="path of an existing SentencePiece model; empty trains one on both languages")
    separate_vocabularies: bool = setting(
        False, help="a new tokenizer for each language; needs model.tie_embeddings=false")
    subword_sampling: float = setting(
        0.0, low=0, below=1, help="resample subwords at each step: probability of BPE-dropout, "
        "such as 0.05, or alpha of a unigram vocabulary, such as 0.2; 0: off")
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
        4.0, low=1, high=MAX_FLOAT, help="largest length ratio of the sides of a training pair")
    # fmt: on

    def __post_init__(self) -> None:
        require_allowed(self, "data.")
        if self.tokenizer:
            left_out = "left out with `data.tokenizer`, which has its own"
            for name, default in {"normalization": None, "character_coverage": 1}.items():
                value = getattr(self, name)
                require(value == default, f"data.{name}", left_out, value)
        split_tags(self.tag)
        require_words("data.symbols", self.symbols)
        if self.mix:
            mix_weights(self.mix, [1] * len(self.train))


def require_words(name: str, symbols: Sequence[str]) -> None:
    """Raises UserError for a symbol that is empty or has a blank."""
    for symbol in symbols:
        fits = bool(symbol) and not any(char.isspace() for char in symbol)
        require(fits, name, "words without blanks", symbol)


def split_tags(tags: Sequence[str]) -> dict[str, str]:
    """Parses "KEY=TAG" strings into tags by key; raises UserError for any other form."""
    by_key: dict[str, str] = {}
    for item in tags:
        key, _, tag = item.partition("=")
        fits = key and tag.split() and key not in by_key
        require(bool(fits), "data.tag", "KEY=TAG, such as de=<2de>, each key once", item)
        by_key[key] = " ".join(tag.split())
    return by_key


def mix_weights(mix: str, sizes: Sequence[int]) -> list[float]:
    """Returns the relative weight of each corpus.

    Args:
        mix: weights separated by colons, such as "1:4"; or "temperature=T", which gives a
            corpus of n pairs the weight n**(1/T) (Arivazhagan et al. 2019, "Massively
            Multilingual Neural Machine Translation in the Wild").
        sizes: number of pairs of each corpus.

    Raises:
        UserError: if the mix has neither form, the wrong number of weights, or a number that
            is not above 0.
    """
    name, equals, temperature = mix.partition("=")
    try:
        numbers = [float(text) for text in (temperature if equals else mix).split(":")]
    except ValueError:
        numbers = []
    by_size = equals and name == "temperature" and len(numbers) == 1
    if not (by_size or (not equals and len(numbers) == len(sizes))):
        raise UserError(
            "`data.mix` must be temperature=T, or weights separated by colons, such as 1:4, "
            f"one for each of the {len(sizes)} --train. Received: {quoted(mix)}."
        )
    if not all(0 < number <= MAX_FLOAT for number in numbers):
        raise UserError(
            f"The numbers in `data.mix` must be above 0. Received: {quoted(mix)}. To exclude "
            "a corpus, leave it out of --train."
        )
    if not by_size:
        return numbers
    return [(size / max(sizes)) ** (1 / numbers[0]) for size in sizes]
