"""The configuration of a run: its four sections, overrides, and files in JSON and YAML."""

import dataclasses
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self, TypedDict

from tf_transformer.base import former
from tf_transformer.base.architecture import POSITION_KINDS, head_sizes
from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import parse_json
from tf_transformer.config.settings import (
    MAX_COUNT,
    MAX_FLOAT,
    MAX_TOKENS,
    Setting,
    convert_fields,
    find_named,
    mix_weights,
    parse_value,
    require,
    require_words,
    setting,
    settings_of,
    split_tags,
)

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3
SLOTS = tuple(f"<{number}>" for number in range(1, 10))  # pieces that stand for spans

# Gain of query, key and value kernels: as if they were one Xavier kernel [D, 3 D].
DEFAULT_GAIN = 2**-0.5


# fmt: off
@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The architecture (paper 3), with the paper's base model as defaults."""

    vocab_size: int = setting(37_000, low=EOS_ID + 2, high=1_000_000, paper="5.1",
        by_preset=True, help="V, the number of word pieces, shared by source and target")
    num_layers: int = setting(6, low=1, high=1_000, paper="3.1", by_preset=True,
        help="N, layers in the encoder, and in the decoder by default")
    decoder_layers: int | None = setting(None, low=1, high=1_000, paper="3.1", by_preset=True,
        help="layers in the decoder; num_layers if None")
    d_model: int = setting(512, low=1, high=65_536, paper="3.1", by_preset=True,
        help="D, the width of every sublayer's output; even")
    d_ff: int = setting(2048, low=1, high=1_000_000, paper="3.3", by_preset=True,
        help="F, the inner width of the feed-forward networks")
    num_heads: int = setting(8, low=1, high=65_536, paper="3.2.2", by_preset=True,
        help="H, attention heads per sublayer")
    key_dim: int | None = setting(None, low=1, high=65_536, paper="3.2.2", by_preset=True,
        help="K, the width of a head's queries and keys; d_model / num_heads if None")
    value_dim: int | None = setting(None, low=1, high=65_536, paper="3.2.2", by_preset=True,
        help="width of a head's values; d_model / num_heads if None")
    dropout: float = setting(0.1, low=0, below=1, paper="5.4", by_preset=True,
        init_from="recipe", help="rate on sublayer outputs and on embeddings plus positions")
    attention_dropout: float = setting(0.0, low=0, below=1, paper="5.4, which has none there",
        init_from="recipe", help="rate on attention weights; the paper has none there")
    activation_dropout: float = setting(0.0, low=0, below=1, paper="5.4, which has none there",
        init_from="recipe",
        help="rate after the activation of feed-forward networks; the paper has none there")
    norm_first: bool = setting(False, paper="3.1",
        help="pre-LN, with a final norm on both stacks, instead of the paper's post-LN")
    positions: str = setting("sinusoidal", paper="3.5", by_preset=True,
        choices=POSITION_KINDS, help="how the model knows the order of tokens: "
        + ", ".join(f"{name} ({kind.help})" for name, kind in POSITION_KINDS.items()))
    attention_window: int = setting(0, low=0, high=MAX_TOKENS, init_from="taken",
        help="positions to each side (back, in a decoder) that self-attention sees; 0: all")
    tie_embeddings: bool = setting(True, paper="3.4",
        help="one matrix for both embeddings and the output projection (paper 3.4)")
    max_length: int = setting(1024, low=1, high=MAX_TOKENS, card="never",
        help="longest input if positions are learned")
    source_positions: int | None = setting(None, low=1, high=MAX_TOKENS, resume="ignored",
        init_from="own",
        help="learned positions that sources have trained, set by training; max_length if None")
    target_positions: int | None = setting(None, low=1, high=MAX_TOKENS, resume="ignored",
        init_from="own",
        help="learned positions that targets have trained, set by training; max_length if None")
    attention_bias: bool = setting(False,
        help="biases in the projections of attention; the paper has none")
    output_bias: bool = setting(False,
        help="a bias added to the logits; the paper has none")
    activation: str = setting("relu", choices=("relu", "swish", "swiglu", "geglu"),
        help="activation of the feed-forward networks; in the last two it gates a second inner "
        "projection of width F")
    norm: str = setting("layer", choices=("layer", "rms"), help="kind of every norm")
    norm_epsilon: float = setting(1e-6, above=0, high=1,
        help="added to the variance in every norm")
    query_key_gain: float = setting(DEFAULT_GAIN, above=0, high=100, init_from="taken",
        help="gain of the Xavier uniform initialisation of query and key kernels")
    value_gain: float = setting(DEFAULT_GAIN, above=0, high=100, init_from="taken",
        help="gain of the Xavier uniform initialisation of value kernels")
    # fmt: on

    @property
    def head_sizes(self) -> tuple[int, int]:
        """The widths of a head's queries and keys, K, and of its values."""
        return head_sizes(self.d_model, self.num_heads, self.key_dim, self.value_dim)

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

    @property
    def positions_are_limited(self) -> bool:
        """True if each position has a vector of its own, which training must reach."""
        return POSITION_KINDS[self.positions].limited

    def _longest(self, trained: int | None) -> int | None:
        if not self.positions_are_limited:
            return None
        return min(self.max_length, trained or self.max_length)

    def __post_init__(self) -> None:
        convert_fields(self)
        require(self.d_model % 2 == 0, "d_model", "even", self.d_model)
        key_dim, _ = self.head_sizes
        fits = key_dim % 2 == 0 or not POSITION_KINDS[self.positions].even_key_dim
        require(fits, "key_dim", f"even, if positions are {self.positions}", key_dim)


# --- Data -------------------------------------------------------------------------------------

# Ways for a tokenizer to rewrite text before splitting it; the first is the default.
NORMALIZATIONS = ("identity", "nfkc", "nmt_nfkc")

# SacreBLEU's tokenisers that need no other package.
BLEU_TOKENIZERS = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char", "none")
WITHOUT_BLANKS = BLEU_TOKENIZERS[2:6]  # chosen for text without blanks between words


# fmt: off
@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The text; without `tokenizer`, one with `model.vocab_size` pieces is trained on it.

    Training and the dev loss leave out pairs beyond `max_length` or `max_ratio`; dev BLEU is
    measured on all pairs.
    """

    train: tuple[str, ...] = setting((), flag="--train PREFIX", card="never", init_from="own",
        help="training text: prefixes of PREFIX.LANG[.gz] or tables FILE.tsv[.gz], with "
        ":SOURCE-TARGET if their languages differ from the run's")
    valid: tuple[str, ...] = setting((), flag="--valid PREFIX", card="never", init_from="own",
        help="dev text, in the same form")
    mix: str = setting("", flag="--mix W:W", init_from="own",
        help="weights of the training texts, such as 1:4, or temperature=5; empty: by size")
    tag: tuple[str, ...] = setting((), flag="--tag KEY=TAG", init_from="own",
        help="KEY=TAG: text put before each source, by target language or corpus, such as "
        "de=<2de>")
    symbols: tuple[str, ...] = setting((), init_from="own",
        help="words that a new tokenizer never splits; training adds its one-word tags")
    source: str = setting("", flag="--source LANG", card="never",
        help="language to translate from, the suffix of its files")
    target: str = setting("", flag="--target LANG", card="never",
        help="language to translate to")
    bleu_tokenizer: str = setting("13a", choices=BLEU_TOKENIZERS, resume="recorded",
        help="sacreBLEU's tokeniser for the target text, none for tokenised text; 13a becomes "
        "zh, ja-mecab, ko-mecab or char for text without blanks between words")
    tokenizer: str = setting("", card="never", init_from="own",
        help="path of an existing SentencePiece model; empty trains one on both languages")
    separate_vocabularies: bool = setting(False, init_from="own",
        help="a new tokenizer for each language; needs model.tie_embeddings=false")
    subword_sampling: float = setting(0.0, low=0, below=1,
        help="resample subwords at each step: probability of BPE-dropout, such as 0.05, or "
        "alpha of a unigram vocabulary, such as 0.2; 0: off")
    join: float = setting(0.0, low=0, high=1,
        help="probability that a training pair is joined with others of its text, so that the "
        "model learns to translate several sentences at once; 0: off")
    join_order: str = setting("file", choices=("file", "random"),
        help="which pairs are joined: those that follow in the file, or random ones, as always "
        "with data.mix")
    caps: float = setting(0.0, low=0, high=1,
        help="probability that a training pair is in capitals, in title case, or without its "
        "final mark; 0: off")
    slots: float = setting(0.0, low=0, high=1,
        help="probability that words of a training pair become slots, so that translation can "
        "keep names, numbers, tags and terms; 0: off")
    tokenizer_kind: str = setting("bpe", choices=("bpe", "unigram"), paper="5.1",
        init_from="own", help="algorithm of a new tokenizer")
    normalization: str | None = setting(None, choices=NORMALIZATIONS, card="always",
        init_from="own", help="how a new tokenizer rewrites text; identity if None")
    # The bounds are SentencePiece's.
    character_coverage: float = setting(1.0, low=0.98, high=1.0, card="always", init_from="own",
        help="share of all characters that a new tokenizer has pieces for; others become bytes")
    max_length: int = setting(256, low=8, high=MAX_TOKENS, card="always",
        help="longest side of a training pair, in tokens with EOS")
    max_ratio: float = setting(4.0, low=1, high=MAX_FLOAT, card="always",
        help="largest length ratio of the sides of a training pair")
    # fmt: on

    def __post_init__(self) -> None:
        convert_fields(self)
        if self.tokenizer:
            left_out = "left out with `data.tokenizer`, which has its own"
            for name, default in {"normalization": None, "character_coverage": 1}.items():
                value = getattr(self, name)
                require(value == default, f"data.{name}", left_out, value)
        split_tags(self.tag)
        require_words("data.symbols", self.symbols)
        if self.mix:
            mix_weights(self.mix, [1] * len(self.train))


# --- Training ---------------------------------------------------------------------------------


# fmt: off
@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The recipe (paper 5). A batch is the data of one update, over all devices.

    Where nothing is said (see `Setting`), a begun run refuses another value, `init_from` takes
    it with a recipe, and the card tells if it was changed.
    """

    steps: int = setting(100_000, low=1, high=MAX_COUNT, paper="5.2", by_preset=True,
        resume="recorded", help="updates in total")
    batch_tokens: int = setting(25_000, low=1, high=MAX_COUNT, flag="--batch-tokens N",
        paper="5.1", resume="recorded", help="tokens per side in one update, over all devices")
    max_tokens_per_device: int | None = setting(None, low=0, high=MAX_COUNT,
        flag="--max-tokens-per-device N", resume="recorded", same_results=True,
        help="tokens per side that a device processes at once; larger batches accumulate "
        "gradients, with the same result; 0: no limit; None: 4,096 on a CPU, 0 on a GPU")
    warmup_steps: int = setting(4_000, low=1, high=MAX_COUNT, paper="5.3", resume="recorded",
        help="steps in which the learning rate grows linearly")
    learning_rate_scale: float = setting(1.0, above=0, high=MAX_FLOAT, paper="5.3",
        resume="recorded", help="factor on the paper's learning rate (5.3)")
    beta_1: float = setting(0.9, low=0, below=1, paper="5.3",
        help="Adam's decay rate of the first moment")
    beta_2: float = setting(0.98, low=0, below=1, paper="5.3",
        help="Adam's decay rate of the second moment")
    epsilon: float = setting(1e-9, above=0, high=1, paper="5.3",
        help="term added to Adam's denominator")
    label_smoothing: float = setting(0.1, low=0, below=1, paper="5.4",
        help="probability spread over the vocabulary (5.4)")
    clip_norm: float = setting(0.0, low=0, high=MAX_FLOAT, paper="5.3, which has none",
        resume="recorded", help="largest global norm of the gradient; 0: no clipping")
    ema_decay: float = setting(0.0, low=0, below=1, paper="6.1, which averages checkpoints",
        help="decay of a moving average, evaluated and saved instead of the weights; 0: off")
    evaluate_every: int = setting(1_500, low=1, high=MAX_COUNT, paper="6.1, ten minutes",
        by_preset=True, resume="recorded", help="steps between evaluations on the dev set")
    best_by: str = setting("bleu", choices=("bleu", "chrf", "perplexity", "score"),
        former=former.SCORES, help="dev score that decides which weights are best; score: that "
        "of a function of one's own, in Python")
    keep_last: int = setting(5, low=1, high=MAX_COUNT, card="never", resume="recorded",
        help="newest checkpoints kept; at least average_last")
    average_last: int = setting(5, low=1, high=MAX_COUNT, paper="6.1", by_preset=True,
        resume="recorded", help="newest checkpoints averaged at the end (6.1)")
    patience: int = setting(0, low=0, high=MAX_COUNT, paper="5.2, a fixed number of steps",
        resume="recorded",
        help="evaluations without a better score after which training ends; 0: off")
    save_minutes: float = setting(10.0, above=0, high=1_000_000, card="never",
        resume="recorded", same_results=True,
        help="minutes between saves of the state for resuming")
    precision: str = setting("float32", help="Keras's dtype policy",
        choices=("float32", "mixed_bfloat16", "mixed_float16"))
    recompute: bool = setting(False, resume="recorded",
        help="recompute layers in the backward pass: less memory, slower, the same result")
    jit_compile: bool = setting(False, resume="recorded",
        help="train by XLA programs, one for each kind of layer; experimental")
    deterministic: bool = setting(False, card="never", resume="recorded",
        help="fix the order of additions on a GPU, which is slower; a CPU's always is")
    init_from: str = setting("", flag="--init-from RUN", group="run", init_from="own",
        help="run to start from: its best weights, its tokenizer and, without a model or "
        "recipe, its training settings; empty: none")
    freeze: tuple[str, ...] = setting((), flag="--freeze PATTERN", group="run", init_from="own",
        help="layers not to train, as shell patterns: encoder, or !*norm for all but norms")
    lora_rank: int = setting(0, low=0, high=65_536, flag="--lora RANK", group="run",
        init_from="own",
        help="train only LoRA adapters of this rank, on the weights of init_from; 0: off")
    schedule_start: int = setting(0, low=0, high=MAX_COUNT, init_from="own",
        help="steps of the learning-rate schedule to skip")
    seed: int = setting(1, low=0, high=2**32 - 1, card="never",
        help="seed of initial weights, dropout and the order of batches")
    # fmt: on

    def __post_init__(self) -> None:
        convert_fields(self)
        enough = self.keep_last >= self.average_last
        at_least = f"at least average_last ({self.average_last})"
        require(enough, "keep_last", at_least, self.keep_last)


# --- Decoding ---------------------------------------------------------------------------------

DECODING_PRECISIONS = ("float32", "bfloat16", "int8")  # of a loaded model


# fmt: off
@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """Beam search (paper 6.1).

    Example:
        >>> DecodingConfig(beam_size=8).alpha  # the paper's
        0.6
    """

    beam_size: int = setting(4, low=1, high=1_000, flag="--beam W", paper="6.1",
        of_search=True, help="beam size: hypotheses kept; 1 is greedy")
    # A larger exponent could overflow.
    alpha: float = setting(0.6, low=0, high=10.0, flag="--alpha A", paper="6.1",
        of_search=True, help="exponent of the length penalty; 0 for none")
    max_extra_length: int = setting(50, low=1, high=10_000, paper="6.1",
        help="how many tokens the output may have more than the input")
    max_source_length: int = setting(1_024, low=1, high=MAX_TOKENS,
        help="most input tokens; the rest is cut off")
    checkpoint: str = setting("best", choices=("best", "average", "last"), init_from="own",
        help="weights used by default")
    batch_tokens: int = setting(4_096, low=1, high=MAX_COUNT, flag="--batch-tokens N",
        same_results=True, help="source tokens times beams in a batch")
    min_length: int = setting(0, low=0, high=MAX_TOKENS, flag="--min-length N",
        help="fewest output tokens, EOS included; 0: off")
    max_length: int = setting(0, low=0, high=MAX_TOKENS, flag="--max-length N",
        help="most output tokens, EOS included; 0: off")
    no_repeat_ngram: int = setting(0, low=0, high=100, flag="--no-repeat-ngram N",
        help="length of the n-grams that may occur only once; 0: off")
    lookahead: int = setting(0, low=0, high=MAX_TOKENS, flag="--lookahead N", of_search=True,
        help="stop when no better hypothesis could end within this many tokens; 0: exact")
    jit_compile: bool = setting(False, card="never", same_results=True,
        flag="--jit-compile true/false",
        help="search with steps that XLA compiles; experimental")
    # fmt: on

    def __post_init__(self) -> None:
        convert_fields(self)
        consistent = self.max_length == 0 or self.max_length >= self.min_length
        expected = f"0 or at least min_length ({self.min_length})"
        require(consistent, "max_length", expected, self.max_length)

    def canonical(self) -> Self:
        """Returns that search of those with the same results whose other settings are least."""
        least: Any = {name: it.bounds.low for name, it in SEARCH.items() if it.same_results}
        return dataclasses.replace(self, **least)


# fmt: off
@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """Sampling of translations, instead of a search for the best.

    Example:
        >>> SamplingConfig(top_k=10).temperature
        1.0
    """

    # Beyond the bounds, logits divided by it soon overflow or become equal.
    temperature: float = setting(1.0, low=0.01, high=100.0,
        flag="--temperature T", help="divides the logits: below 1 less random, above 1 more")
    top_k: int = setting(0, low=0, high=MAX_COUNT, flag="--top-k K",
        help="draw from this many most probable tokens; 0: all")
    top_p: float = setting(1.0, above=0, high=1, flag="--top-p P",
        help="of these, the fewest whose probabilities reach this sum")
    seed: int = setting(1, low=0, high=2**32 - 1, flag="--seed N",
        help="seed of the random numbers")
    # fmt: on

    def __post_init__(self) -> None:
        convert_fields(self)


class SearchOptions(TypedDict, total=False):
    """Arguments that replace fields of `DecodingConfig`, and make a `SamplingConfig`."""

    beam_size: int
    alpha: float
    max_extra_length: int
    max_source_length: int
    batch_tokens: int
    min_length: int
    max_length: int
    no_repeat_ngram: int
    lookahead: int
    jit_compile: bool
    temperature: float
    top_k: int
    top_p: float
    seed: int


# --- All of them ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that defines a run, stored as config.json in its directory."""

    preset: str = ""  # name of the preset that it is based on
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def flat(self) -> dict[str, Any]:
        """Returns all settings as `{"section.field": value}`, and `preset`."""
        return flattened(dataclasses.asdict(self))

    def to_json(self, **also: Any) -> str:
        """Returns the content of config.json, which may have other entries as well."""
        record = dataclasses.asdict(self) | also
        return json.dumps(record, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parses config.json; raises UserError for an unknown or wrongly typed field."""
        try:
            record = parse_json(text)
            for facts in ("texts", "functions"):  # of the run, and no settings
                record.pop(facts, None)
            task = record.pop("task", TASK.default)
            values = {name: record[name] for name in _NAMES} | flattened(record)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise UserError(f"The configuration is not a valid config.json: {error}.") from None
        TASK.check("task", task)
        return cls.from_flat(values)

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> Self:
        """Returns the configuration with settings by "section.field", and `preset`.

        Raises UserError for an unknown setting, a wrong type or a value out of bounds.
        """
        rest = dict(values)
        names = {name: setting.check(name, rest.pop(name)) for name, setting in _NAMES.items()}
        return cls(**names).replace(rest)

    def replace(self, values: Mapping[str, Any]) -> Self:
        """Returns a copy with `{"section.field": value}` replaced, each value checked."""
        changes: dict[str, dict[str, Any]] = {}
        for dotted, value in values.items():
            section, _, name = dotted.partition(".")
            setting = find_named("setting", dotted, SETTINGS)
            changes.setdefault(section, {})[name] = setting.check(dotted, value)
        sections = {
            section: dataclasses.replace(getattr(self, section), **fields)
            for section, fields in changes.items()
        }
        return dataclasses.replace(self, **sections)


def flattened(record: Mapping[Any, Any]) -> dict[str, Any]:
    """Returns nested fields as `{"section.field": value}`, and others under their names."""
    flat: dict[str, Any] = {}
    for section, value in record.items():
        if isinstance(value, dict):
            flat |= {f"{section}.{name}": item for name, item in value.items()}
        else:
            flat[str(section)] = value
    return flat


# Outside the sections.
_NAMES = {
    "preset": Setting(str, card="never", resume="recorded"),
}
# Files of 1.1.0, its options and its arguments name a task.
TASK = Setting(str, choices=("translation",), default="translation", former=former.TASKS)
# The settings of a run by "section.field", and the options of a search and of sampling. A fact
# given here is that of every field of the section that does not say otherwise.
SETTINGS = (
    settings_of(ModelConfig, "model.", init_from="same")
    | settings_of(DataConfig, "data.", group="training")
    | settings_of(TrainingConfig, "training.", group="training")
    | settings_of(DecodingConfig, "decoding.", resume="recorded")
)
SEARCH = settings_of(DecodingConfig, group="search")
del SEARCH["checkpoint"]  # chosen when a run is loaded
SAMPLING = settings_of(SamplingConfig, group="sampling")


def settings_with(**facts: Any) -> dict[str, Setting]:
    """Returns the settings, `preset` included, of which all these facts are true."""
    known = _NAMES | SETTINGS
    return {name: setting for name, setting in known.items() if setting.has(**facts)}


def read_settings_file(path: Path) -> dict[str, Any]:
    """Reads a file into settings by "section.field", plus `preset` if present.

    A .json file is the config.json of a run. Any other file is YAML, with the same sections or
    with dotted names; a value is a string as for --set, or a YAML number, list and so on.
    Raises UserError if it cannot be read, or has an unknown setting or invalid value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}.") from None
    try:
        return Config.from_json(text).flat() if path.suffix == ".json" else _parse_yaml(text)
    except UserError as error:
        raise UserError(f"{path}: {error}") from None


def _parse_yaml(text: str) -> dict[str, Any]:
    import yaml  # here, since commands without such a file need not wait for it

    try:
        record = yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError) as error:
        raise UserError(f"The file is not valid YAML: {error}.") from None
    if not isinstance(record, dict):
        raise UserError(
            "The file must have sections of settings, such as `model:`. Received: "
            f"{quoted(record)}."
        )
    values = flattened(record)
    TASK.check("task", values.pop("task", TASK.default))
    for name, value in values.items():
        setting = _NAMES.get(name) or find_named("setting", name, SETTINGS)
        parsed = parse_value(setting, value) if isinstance(value, str) else value
        values[name] = setting.check(name, parsed)
    return values
