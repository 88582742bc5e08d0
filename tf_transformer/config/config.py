"""The configuration of a run: its four sections, overrides, and files in JSON and YAML."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import yaml

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.config.settings import (
    MAX_COUNT,
    MAX_FLOAT,
    MAX_TOKENS,
    Setting,
    convert_fields,
    find_named,
    mix_weights,
    parse_assignments,
    parse_value,
    require,
    require_words,
    setting,
    settings_of,
    split_tags,
)

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3

# Gain of query, key and value kernels: as if they were one Xavier kernel [D, 3 D].
DEFAULT_GAIN = 2**-0.5


# fmt: off
@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The architecture (paper 3), with the paper's base model as defaults."""

    vocab_size: int = setting(
        37_000, low=EOS_ID + 2, high=1_000_000, help="V, shared by source and target",
        paper="5.1", by_preset=True)
    num_layers: int = setting(
        6, low=1, high=1_000, help="N, layers in the encoder, and in the decoder by default",
        paper="3.1", by_preset=True)
    decoder_layers: int | None = setting(
        None, low=1, high=1_000, help="layers in the decoder; num_layers if None",
        paper="3.1", by_preset=True, of_decoders=True)
    d_model: int = setting(
        512, low=1, high=65_536, help="D, the width of every sublayer's output; even",
        paper="3.1", by_preset=True)
    d_ff: int = setting(
        2048, low=1, high=1_000_000, help="F, the inner width of the feed-forward networks",
        paper="3.3", by_preset=True)
    num_heads: int = setting(
        8, low=1, high=65_536, help="H, attention heads per sublayer",
        paper="3.2.2", by_preset=True)
    key_dim: int | None = setting(
        None, low=1, high=65_536,
        help="K, the width of a head's queries and keys; d_model / num_heads if None",
        paper="3.2.2", by_preset=True)
    value_dim: int | None = setting(
        None, low=1, high=65_536,
        help="width of a head's values; d_model / num_heads if None",
        paper="3.2.2", by_preset=True)
    dropout: float = setting(
        0.1, low=0, below=1, help="rate on sublayer outputs and on embeddings plus positions",
        paper="5.4", by_preset=True, init_from="recipe")
    attention_dropout: float = setting(
        0.0, low=0, below=1, help="rate on attention weights; the paper has none there",
        paper="5.4, which has none there", init_from="recipe")
    activation_dropout: float = setting(
        0.0, low=0, below=1,
        help="rate after the activation of feed-forward networks; the paper has none there",
        paper="5.4, which has none there", init_from="recipe")
    norm_first: bool = setting(
        False, help="pre-LN, with a final norm on both stacks, instead of the paper's post-LN",
        paper="3.1")
    positions: str = setting(
        "sinusoidal", choices=("sinusoidal", "learned", "relative", "rotary", "none"),
        help="how the model knows the order of tokens: the first two are added to the "
        "embeddings, relative and rotary act in self-attention", paper="3.5", by_preset=True)
    attention_window: int = setting(
        0, low=0, high=MAX_TOKENS,
        help="positions to each side (back, in a decoder) that self-attention sees; 0: all",
        init_from="taken")
    tie_embeddings: bool = setting(
        True, help="one matrix for both embeddings and the output projection (paper 3.4)",
        paper="3.4", of_decoders=True)
    max_length: int = setting(
        1024, low=1, high=MAX_TOKENS, help="longest input if positions are learned",
        card="never")
    source_positions: int | None = setting(
        None, low=1, high=MAX_TOKENS,
        help="learned positions that sources have trained, set by training; max_length if None",
        resume="ignored", init_from="own")
    target_positions: int | None = setting(
        None, low=1, high=MAX_TOKENS,
        help="learned positions that targets have trained, set by training; max_length if None",
        resume="ignored", init_from="own", of_decoders=True)
    attention_bias: bool = setting(
        False, help="biases in the projections of attention; the paper has none")
    output_bias: bool = setting(
        False, help="a bias added to the logits; the paper has none", of_decoders=True)
    activation: str = setting(
        "relu", choices=("relu", "swish", "swiglu", "geglu"),
        help="activation of the feed-forward networks; in the last two it gates a second inner "
        "projection of width F")
    norm: str = setting("layer", choices=("layer", "rms"), help="kind of every norm")
    norm_epsilon: float = setting(
        1e-6, above=0, high=1, help="added to the variance in every norm")
    query_key_gain: float = setting(
        DEFAULT_GAIN, above=0, high=100,
        help="gain of the Xavier uniform initialisation of query and key kernels",
        init_from="taken")
    value_gain: float = setting(
        DEFAULT_GAIN, above=0, high=100,
        help="gain of the Xavier uniform initialisation of value kernels", init_from="taken")
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
        convert_fields(self)
        require(self.d_model % 2 == 0, "d_model", "even", self.d_model)
        key_dim = self.key_dim or self.d_model // self.num_heads
        turns = self.positions != "rotary" or key_dim % 2 == 0
        require(turns, "key_dim", "even, if positions are rotary", key_dim)
        if self.d_model % self.num_heads and None in (self.key_dim, self.value_dim):
            raise UserError(
                "`num_heads` must divide `d_model`, unless key_dim and value_dim are given. "
                f"Received: num_heads={self.num_heads}, d_model={self.d_model}."
            )


# --- Data -------------------------------------------------------------------------------------

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
        "files of trees or labelled sentences",
        flag="--train PREFIX", card="never", init_from="own")
    valid: tuple[str, ...] = setting(
        (), help="dev text, in the same form",
        flag="--valid PREFIX", card="never", init_from="own")
    mix: str = setting(
        "", help="weights of the training texts, such as 1:4, or temperature=5; empty: by size",
        flag="--mix W:W", init_from="own")
    tag: tuple[str, ...] = setting(
        (), help="KEY=TAG: text put before each source, by target language or corpus, such as "
        "de=<2de>", flag="--tag KEY=TAG", init_from="own")
    symbols: tuple[str, ...] = setting(
        (), help="words that a new tokenizer never splits, in addition to one-word tags",
        init_from="own")
    source: str = setting(
        "", help="language to translate from, the suffix of its files",
        flag="--source LANG", card="never")
    target: str = setting(
        "", help="language to translate to", flag="--target LANG", card="never")
    bleu_tokenizer: str = setting(
        "13a", choices=BLEU_TOKENIZERS, help="sacreBLEU's tokeniser for the target text: zh "
        "for Chinese, char for others without blanks between words, none for tokenised text")
    tokenizer: str = setting(
        "", help="path of an existing SentencePiece model; empty trains one on both languages",
        card="never", init_from="own")
    separate_vocabularies: bool = setting(
        False, help="a new tokenizer for each language; needs model.tie_embeddings=false",
        init_from="own")
    subword_sampling: float = setting(
        0.0, low=0, below=1, help="resample subwords at each step: probability of BPE-dropout, "
        "such as 0.05, or alpha of a unigram vocabulary, such as 0.2; 0: off")
    join: float = setting(
        0.0, low=0, high=1, help="probability that a training pair is joined with others of "
        "its text, so that the model learns to translate several sentences at once; 0: off")
    join_order: str = setting(
        "file", choices=("file", "random"), help="which pairs are joined: those that follow in "
        "the file, or random ones, as always with data.mix")
    caps: float = setting(
        0.0, low=0, high=1, help="probability that a training pair is in capitals, in title "
        "case, or without its final mark; 0: off")
    tokenizer_kind: str = setting(
        "bpe", choices=("bpe", "unigram"), help="algorithm of a new tokenizer",
        paper="5.1", init_from="own")
    normalization: str | None = setting(
        None, choices=NORMALIZATIONS, help="how a new tokenizer rewrites text; None: identity",
        card="always", init_from="own")
    character_coverage: float = setting(  # SentencePiece's bounds
        1.0, low=0.98, high=1.0,
        help="share of all characters that a new tokenizer has pieces for; others become bytes",
        card="always", init_from="own")
    max_length: int = setting(
        256, low=8, high=MAX_TOKENS, help="longest side of a training pair, in tokens with EOS",
        card="always")
    max_ratio: float = setting(
        4.0, low=1, high=MAX_FLOAT, help="largest length ratio of the sides of a training pair",
        card="always")
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

BEST_BY = ("bleu", "chrf", "perplexity", "f1", "accuracy")

PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


# fmt: off
@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The recipe (paper 5). A batch is the data of one update, over all devices."""

    steps: int = setting(
        100_000, low=1, high=MAX_COUNT, help="updates in total",
        paper="5.2", by_preset=True, resume="recorded")
    batch_tokens: int = setting(
        25_000, low=1, high=MAX_COUNT, help="tokens per side in one update, over all devices",
        flag="--batch-tokens N", paper="5.1", resume="recorded")
    max_tokens_per_device: int | None = setting(
        None, low=0, high=MAX_COUNT,
        help="tokens per side that a device processes at once; larger batches accumulate "
        "gradients, with the same result; 0: no limit; None: 4,096 on a CPU, 0 on a GPU",
        flag="--max-tokens-per-device N", resume="recorded", same_results=True)
    warmup_steps: int = setting(
        4_000, low=1, high=MAX_COUNT, help="steps in which the learning rate grows linearly",
        paper="5.3", resume="recorded")
    learning_rate_scale: float = setting(
        1.0, above=0, high=MAX_FLOAT, help="factor on the paper's learning rate (5.3)",
        paper="5.3", resume="recorded")
    beta_1: float = setting(
        0.9, low=0, below=1, help="Adam's decay rate of the first moment", paper="5.3")
    beta_2: float = setting(
        0.98, low=0, below=1, help="Adam's decay rate of the second moment", paper="5.3")
    epsilon: float = setting(
        1e-9, above=0, high=1, help="term added to Adam's denominator", paper="5.3")
    label_smoothing: float = setting(
        0.1, low=0, below=1, help="probability spread over the vocabulary (5.4)", paper="5.4")
    clip_norm: float = setting(
        0.0, low=0, high=MAX_FLOAT, help="largest global norm of the gradient; 0: no clipping",
        paper="5.3, which has none", resume="recorded")
    ema_decay: float = setting(
        0.0, low=0, below=1,
        help="decay of a moving average, evaluated and saved instead of the weights; 0: off",
        paper="6.1, which averages checkpoints")
    evaluate_every: int = setting(
        1_500, low=1, high=MAX_COUNT, help="steps between evaluations on the dev set",
        paper="6.1, ten minutes", by_preset=True, resume="recorded")
    best_by: str = setting(
        "bleu", choices=BEST_BY, help="dev score that decides which weights are best")
    keep_last: int = setting(
        5, low=1, high=MAX_COUNT, help="newest checkpoints kept; at least average_last",
        card="never", resume="recorded")
    average_last: int = setting(
        5, low=1, high=MAX_COUNT, help="newest checkpoints averaged at the end (6.1)",
        paper="6.1", by_preset=True, resume="recorded")
    patience: int = setting(
        0, low=0, high=MAX_COUNT,
        help="evaluations without a better score after which training ends; 0: off",
        paper="5.2, a fixed number of steps", resume="recorded")
    save_minutes: float = setting(
        10.0, above=0, high=1_000_000, help="minutes between saves of the state for resuming",
        card="never", resume="recorded", same_results=True)
    precision: str = setting("float32", choices=PRECISIONS, help="Keras's dtype policy")
    recompute: bool = setting(
        False,
        help="recompute layers in the backward pass: less memory, slower, the same result",
        resume="recorded")
    jit_compile: bool = setting(False, help="compile the train step with XLA")
    deterministic: bool = setting(
        False, help="fix the order of additions on a GPU, which is slower; a CPU's always is",
        card="never", resume="recorded")
    init_from: str = setting(
        "", help="run to start from: its best weights, its tokenizer and, without a model or "
        "recipe, its training settings; empty: none",
        flag="--init-from RUN", group="run", init_from="own")
    freeze: tuple[str, ...] = setting(
        (), help="layers not to train, as shell patterns: encoder, or !*norm for all but norms",
        flag="--freeze PATTERN", group="run", init_from="own")
    lora_rank: int = setting(
        0, low=0, high=65_536,
        help="train only LoRA adapters of this rank, on the weights of init_from; 0: off",
        flag="--lora RANK", group="run", init_from="own")
    schedule_start: int = setting(
        0, low=0, high=MAX_COUNT, help="steps of the learning-rate schedule to skip",
        init_from="own")
    seed: int = setting(
        1, low=0, high=2**32 - 1,
        help="seed of initial weights, dropout and the order of batches", card="never")
    # fmt: on

    def __post_init__(self) -> None:
        convert_fields(self)
        enough = self.keep_last >= self.average_last
        at_least = f"at least average_last ({self.average_last})"
        require(enough, "keep_last", at_least, self.keep_last)


# --- Decoding ---------------------------------------------------------------------------------

DECODING_PRECISIONS = ("float32", "bfloat16", "int8")  # of a loaded model
MAX_BEAM_SIZE = 1_000
# A larger exponent of the length penalty could overflow.
MAX_ALPHA = 10.0
# Beyond these, logits divided by the temperature soon overflow or become equal.
TEMPERATURES = (0.01, 100.0)


# fmt: off
@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """Beam search (paper 6.1)."""

    beam_size: int = setting(
        4, low=1, high=MAX_BEAM_SIZE, help="beam size: hypotheses kept; 1 is greedy",
        flag="--beam W", paper="6.1", of_search=True)
    alpha: float = setting(
        0.6, low=0, high=MAX_ALPHA, help="exponent of the length penalty; 0 for none",
        flag="--alpha A", paper="6.1", of_search=True)
    max_extra_length: int = setting(
        50, low=1, high=10_000, help="how many tokens the output may have more than the input",
        paper="6.1")
    max_source_length: int = setting(
        1_024, low=1, high=MAX_TOKENS, help="most input tokens; the rest is cut off")
    checkpoint: str = setting(
        "best", choices=("best", "average", "last"), help="weights used by default",
        init_from="own")
    batch_tokens: int = setting(
        4_096, low=1, high=MAX_COUNT, help="source tokens times beams in a batch",
        flag="--batch-tokens N", same_results=True)
    min_length: int = setting(
        0, low=0, high=MAX_TOKENS, help="fewest output tokens, EOS included; 0: off",
        flag="--min-length N")
    max_length: int = setting(
        0, low=0, high=MAX_TOKENS, help="most output tokens, EOS included; 0: off",
        flag="--max-length N")
    no_repeat_ngram: int = setting(
        0, low=0, high=100, help="length of the n-grams that may occur only once; 0: off",
        flag="--no-repeat-ngram N")
    lookahead: int = setting(
        0, low=0, high=MAX_TOKENS,
        help="stop when no better hypothesis could end within this many tokens; 0: exact",
        flag="--lookahead N", of_search=True)
    # fmt: on

    def __post_init__(self) -> None:
        convert_fields(self)
        consistent = self.max_length == 0 or self.max_length >= self.min_length
        expected = f"0 or at least min_length ({self.min_length})"
        require(consistent, "max_length", expected, self.max_length)

    def canonical(self) -> Self:
        """Returns that search of those with the same results whose other settings are least."""
        settings = settings_of(type(self))
        least: Any = {name: it.bounds.low for name, it in settings.items() if it.same_results}
        return dataclasses.replace(self, **least)


# fmt: off
@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """Sampling of translations, instead of a search for the best."""

    temperature: float = setting(
        1.0, low=TEMPERATURES[0], high=TEMPERATURES[1],
        help="divides the logits: below 1 less random, above 1 more",
        flag="--temperature T")
    top_k: int = setting(
        0, low=0, high=MAX_COUNT, help="draw from this many most probable tokens; 0: all",
        flag="--top-k K")
    top_p: float = setting(
        1.0, above=0, high=1, help="of these, the fewest whose probabilities reach this sum",
        flag="--top-p P")
    seed: int = setting(
        1, low=0, high=2**32 - 1, help="seed of the random numbers", flag="--seed N")
    # fmt: on

    def __post_init__(self) -> None:
        convert_fields(self)


# --- All of them ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that defines a run, stored as config.json in its directory.

    Attributes:
        preset: name of the preset that it is based on, or empty.
        task: name of the task, a key of `tasks.registry.TASKS`.
    """

    preset: str = ""
    task: str = "translation"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def flat(self) -> dict[str, Any]:
        """Returns all settings as `{"section.field": value}`, with `preset` and `task`."""
        return flattened(dataclasses.asdict(self))

    def to_json(self, **also: Any) -> str:
        """Returns the content of config.json, which may have other entries as well."""
        record = dataclasses.asdict(self) | also
        return json.dumps(record, indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Parses config.json; raises UserError for an unknown or wrongly typed field."""
        try:
            record = json.loads(text)
            record.pop("texts", None)  # the hashes of a run's text are no setting
            values = {name: record[name] for name in _NAMES} | flattened(record)
        except (ValueError, AttributeError, KeyError, TypeError) as error:
            raise UserError(f"The configuration is not a valid config.json: {error}.") from None
        return cls.from_flat(values)

    @classmethod
    def from_flat(cls, values: Mapping[str, Any]) -> Self:
        """Returns the configuration with settings by "section.field", `preset` and `task`.

        Raises:
            UserError: for an unknown setting, a wrong type or a value out of bounds.
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

    def override(
        self, assignments: Sequence[str], values: Mapping[str, Any] | None = None
    ) -> Self:
        """Returns a copy with the `section.field=value` arguments of --set applied.

        `values`, which they take precedence over, are applied with them: only the combination
        must be valid.
        """
        return self.replace(dict(values or {}) | parse_assignments(assignments, SETTINGS))


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
    "task": Setting(str, card="never"),
}
# The settings of a run by "section.field", and the options of sampling. A fact given here is
# that of every field of the section that does not say otherwise.
SETTINGS = (
    settings_of(ModelConfig, "model.", init_from="same")
    | settings_of(DataConfig, "data.", group="training")
    | settings_of(TrainingConfig, "training.", group="training")
    | settings_of(DecodingConfig, "decoding.", group="search", resume="recorded")
)
SAMPLING = settings_of(SamplingConfig, group="sampling")


def settings_with(**facts: Any) -> dict[str, Setting]:
    """Returns the settings, `preset` and `task` included, of which all these facts are true."""
    known = _NAMES | SETTINGS
    return {name: setting for name, setting in known.items() if setting.has(**facts)}


def read_settings_file(path: Path) -> dict[str, Any]:
    """Reads a file into settings by "section.field", plus `preset` and `task` if present.

    A .json file is the config.json of a run. Any other file is YAML, with the same sections or
    with dotted names; a value is a string as for --set, or a YAML number, list and so on.

    Raises:
        UserError: if the file cannot be read, or has an unknown setting or invalid value.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"--config {path} cannot be read: {error}.") from None
    try:
        return Config.from_json(text).flat() if path.suffix == ".json" else _parse_yaml(text)
    except UserError as error:
        raise UserError(f"--config {path}: {error}") from None


def _parse_yaml(text: str) -> dict[str, Any]:
    try:
        record = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise UserError(f"The file is not valid YAML: {error}.") from None
    if not isinstance(record, dict):
        raise UserError(
            "The file must have sections of settings, such as `model:`. Received: "
            f"{quoted(record)}."
        )
    values = flattened(record)
    for name, value in values.items():
        setting = _NAMES.get(name) or find_named("setting", name, SETTINGS)
        parsed = parse_value(setting, value) if isinstance(value, str) else value
        values[name] = setting.check(name, parsed)
    return values
