"""The configuration of a run: frozen dataclasses, overrides, JSON round trip; no TensorFlow."""

import dataclasses
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tf_transformer.config.settings import (
    Setting,
    find_field,
    parse_assignments,
    require,
    require_allowed,
    setting,
    settings_of,
)
from tf_transformer.errors import UserError

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3

POSITIONS = ("sinusoidal", "learned")
ACTIVATIONS = ("relu", "swish")
TOKENIZER_KINDS = ("bpe", "unigram")
# How a tokenizer rewrites text before it cuts it; the first is that of a new one.
NORMALIZATIONS = ("identity", "nfc", "nfkc", "nmt_nfkc")
BEST_BY = ("bleu", "chrf", "perplexity", "f1", "accuracy")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


# The most of what is counted: int32 holds it. The largest float that float32 holds, roughly.
MAX_COUNT, MAX_FLOAT = 1_000_000_000, 1e38
# The most tokens of a text, and positions of a model: beyond, a search would hardly ever end.
MAX_TOKENS = 1_000_000
MAX_BEAM_SIZE = 1_000
# Beyond these, logits divided by the temperature soon overflow or are all the same.
TEMPERATURES = (0.01, 100.0)
# A larger exponent of the length penalty could overflow.
MAX_ALPHA = 10.0
# `tf-transformer shortlist`: pairs to learn from, translations of a token, frequent tokens.
SHORTLIST_PAIRS, SHORTLIST_TRANSLATIONS, SHORTLIST_FREQUENT = 200_000, 50, 100


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The architecture (paper 3): the arguments of `tf_transformer.Transformer`.

    `key_dim` and `value_dim` are sizes per head; None means d_model / num_heads.
    `max_length` limits the input only where positions are learned. The last four are what
    Marian's models have and the paper's has not: biases in the projections of attention and of
    the output, another `activation`, another `norm_epsilon` of the layer norms.
    """

    vocab_size: int = setting(37_000, low=EOS_ID + 2, high=1_000_000)
    num_layers: int = setting(6, low=1, high=1_000)
    d_model: int = setting(512, low=1, high=65_536)
    d_ff: int = setting(2048, low=1, high=1_000_000)
    num_heads: int = setting(8, low=1, high=65_536)
    key_dim: int | None = setting(None, low=1, high=65_536)
    value_dim: int | None = setting(None, low=1, high=65_536)
    dropout: float = setting(0.1, low=0, below=1)
    norm_first: bool = False
    positions: str = setting("sinusoidal", choices=POSITIONS)
    tie_embeddings: bool = True
    max_length: int = setting(1024, low=1, high=MAX_TOKENS)
    attention_bias: bool = False
    output_bias: bool = False
    activation: str = setting("relu", choices=ACTIVATIONS)
    norm_epsilon: float = setting(1e-6, above=0, high=1)

    def __post_init__(self) -> None:
        require_allowed(self, "model.")
        require(self.d_model % 2 == 0, "model.d_model", "even", self.d_model)
        if self.d_model % self.num_heads and None in (self.key_dim, self.value_dim):
            raise UserError(
                "`model.num_heads` must divide `model.d_model`, unless key_dim and value_dim "
                f"are given. Received: num_heads={self.num_heads}, d_model={self.d_model}."
            )


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The parallel text: `train` and `valid` are prefixes, PREFIX.<lang> or PREFIX.<lang>.gz;
    of tasks without languages, files.

    `tokenizer` is the path of an existing SentencePiece model; empty means that one of
    `model.vocab_size` pieces is trained on the training text (both languages, shared). That
    one keeps text as it is (None: "identity") or rewrites it by a `normalization`, and has
    pieces for `character_coverage` of all characters, counted as often as they occur; the
    rest is spelled in bytes. A tokenizer that exists has both in its file.
    `max_length` (tokens with EOS, either side) and `max_ratio` (longer side / shorter side)
    filter the training pairs, and the dev pairs of the dev loss; dev BLEU is of all of them.
    """

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    source: str = ""
    target: str = ""
    tokenizer: str = ""
    tokenizer_kind: str = setting("bpe", choices=TOKENIZER_KINDS)
    normalization: str | None = setting(None, choices=NORMALIZATIONS)
    character_coverage: float = setting(1.0, low=0.98, high=1.0)  # SentencePiece's bounds
    max_length: int = setting(256, low=8, high=MAX_TOKENS)
    max_ratio: float = setting(4.0, low=1, high=MAX_FLOAT)

    def __post_init__(self) -> None:
        require_allowed(self, "data.")
        if self.tokenizer:
            left_out = "left out with `data.tokenizer`, which holds its own"
            require(self.normalization is None, "data.normalization", left_out,
                     self.normalization)  # fmt: skip
            require(self.character_coverage == 1, "data.character_coverage", left_out,
                     self.character_coverage)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The recipe (paper 5). `batch_tokens` counts the positions of one side of a batch.

    A batch is that of one update, whatever the devices; a device computes at most
    `max_tokens_per_device` positions at once and adds up the gradients. None chooses it by the
    memory of the device (`training.parts`), 0 always computes the whole batch at once.

    `evaluate_every` (steps) sets when the dev set is measured and the weights are kept: the
    best by `best_by` and the newest `keep_last`; the mean of the last `average_last` is tried
    at the end. Every `save_minutes` all that training needs to go on is written as well.
    `patience` (evaluations without a better score), `clip_norm` and `ema_decay` (of an
    exponential moving average of the weights, which is evaluated and kept in their place) are
    off at 0, as in the paper.

    `deterministic` makes a GPU add up in a fixed order, more slowly; CPUs always do.

    `encoder_from` is a run whose embeddings and encoder training begins with; empty for none.
    """

    steps: int = setting(100_000, low=1, high=MAX_COUNT)
    batch_tokens: int = setting(25_000, low=1, high=MAX_COUNT)
    max_tokens_per_device: int | None = setting(None, low=0, high=MAX_COUNT)
    warmup_steps: int = setting(4_000, low=1, high=MAX_COUNT)
    learning_rate_scale: float = setting(1.0, above=0, high=MAX_FLOAT)
    beta_1: float = setting(0.9, low=0, below=1)
    beta_2: float = setting(0.98, low=0, below=1)
    epsilon: float = setting(1e-9, above=0, high=1)
    label_smoothing: float = setting(0.1, low=0, below=1)
    clip_norm: float = setting(0.0, low=0, high=MAX_FLOAT)
    ema_decay: float = setting(0.0, low=0, below=1)
    evaluate_every: int = setting(1_500, low=1, high=MAX_COUNT)
    best_by: str = setting("bleu", choices=BEST_BY)
    keep_last: int = setting(5, low=1, high=MAX_COUNT)
    average_last: int = setting(5, low=1, high=MAX_COUNT)
    patience: int = setting(0, low=0, high=MAX_COUNT)
    save_minutes: float = setting(10.0, above=0, high=1_000_000)
    precision: str = setting("float32", choices=PRECISIONS)
    jit_compile: bool = False
    deterministic: bool = False
    encoder_from: str = ""
    seed: int = setting(1, low=0, high=2**32 - 1)

    def __post_init__(self) -> None:
        require_allowed(self, "training.")
        require(self.keep_last >= self.average_last, "training.keep_last",
                 f"at least average_last ({self.average_last})", self.keep_last)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """Beam search (paper 6.1); the output has at most `max_extra_length` tokens more.

    Input is cut at `max_source_length` tokens, so that no text can take all memory and time.
    The output has at least `min_length` tokens and at most `max_length`, EOS counted, and does
    not hold the same `no_repeat_ngram` tokens in a row twice; all three are off at 0.
    """

    beam_size: int = setting(4, low=1, high=MAX_BEAM_SIZE)
    alpha: float = setting(0.6, low=0, high=MAX_ALPHA)
    max_extra_length: int = setting(50, low=1, high=10_000)
    max_source_length: int = setting(1_024, low=1, high=MAX_TOKENS)
    batch_tokens: int = setting(4_096, low=1, high=MAX_COUNT)
    min_length: int = setting(0, low=0, high=MAX_TOKENS)
    max_length: int = setting(0, low=0, high=MAX_TOKENS)
    no_repeat_ngram: int = setting(0, low=0, high=100)

    def __post_init__(self) -> None:
        require_allowed(self, "decoding.")
        require(self.max_length == 0 or self.max_length >= self.min_length,
                 "decoding.max_length", f"0 or at least min_length ({self.min_length})",
                 self.max_length)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SamplingConfig:
    """Drawing translations from the model instead of searching for the best.

    Each token is drawn from the distribution sharpened (below 1) or flattened (above 1) by
    `temperature`, among the `top_k` most probable tokens (0: all) and of these among the
    fewest whose probabilities sum to `top_p`.
    """

    temperature: float = setting(1.0, low=TEMPERATURES[0], high=TEMPERATURES[1])
    top_k: int = setting(0, low=0, high=MAX_COUNT)
    top_p: float = setting(1.0, above=0, high=1)
    seed: int = setting(1, low=0, high=2**32 - 1)

    def __post_init__(self) -> None:
        require_allowed(self)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that defines a run; stored as config.json in its directory.

    `task` is what it learns, a name of `tasks.registry`.
    """

    preset: str = ""
    task: str = "translation"
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def flat(self) -> dict[str, Any]:
        """All settings as `{"section.field": value}`; what is in no section by its name."""
        flat: dict[str, Any] = {}
        for section, value in dataclasses.asdict(self).items():
            if isinstance(value, dict):
                flat |= {f"{section}.{name}": item for name, item in value.items()}
            else:
                flat[section] = value
        return flat

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote; an unknown or wrongly typed field is a UserError."""
        try:
            record = json.loads(text)
            names = {"preset": record.pop("preset")}
            names["task"] = record.pop("task", cls.task)  # older files have none
            assignments = [
                (f"{section}.{name}", value)
                for section, fields in record.items()
                for name, value in fields.items()
            ]
        except (ValueError, RecursionError, AttributeError, KeyError, TypeError) as error:
            raise UserError(f"The configuration is not a valid config.json: {error}.") from None
        names = {name: Setting(str).check(name, value) for name, value in names.items()}
        return cls(**names).replace(dict(assignments))

    def replace(self, values: dict[str, Any]) -> Self:
        """A copy with `{"section.field": value}` replaced, each checked against its type."""
        changes: dict[str, dict[str, Any]] = {}
        for dotted, value in values.items():
            section, name = find_field(dotted, SETTINGS)
            changes.setdefault(section, {})[name] = SETTINGS[dotted].check(dotted, value)
        sections = {
            section: dataclasses.replace(getattr(self, section), **fields)
            for section, fields in changes.items()
        }
        return dataclasses.replace(self, **sections)

    def override(self, assignments: Sequence[str]) -> Self:
        """Applies `section.field=value` strings, as the command line's --set takes them."""
        return self.replace(parse_assignments(assignments, SETTINGS))


_SECTIONS = {
    "model": ModelConfig,
    "data": DataConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
# What the value of each may be, by section and name.
SETTINGS = {
    name: allowed
    for section, cls in _SECTIONS.items()
    for name, allowed in settings_of(cls, f"{section}.").items()
}
SAMPLING = settings_of(SamplingConfig)
