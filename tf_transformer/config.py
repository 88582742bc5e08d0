"""The configuration of a run: frozen dataclasses, overrides, JSON round trip; no TensorFlow."""

import dataclasses
import json
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tf_transformer.errors import UserError
from tf_transformer.settings import check_type, find_field, parse_assignments, require

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3

POSITIONS = ("sinusoidal", "learned")
ACTIVATIONS = ("relu", "swish")
TOKENIZER_KINDS = ("bpe", "unigram")
# How a tokenizer rewrites text before it cuts it; the first is that of a new one.
NORMALIZATIONS = ("identity", "nfc", "nfkc", "nmt_nfkc")
COVERAGES = (0.98, 1.0)  # SentencePiece takes no others
BEST_BY = ("bleu", "chrf", "perplexity", "f1", "accuracy")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


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

    vocab_size: int = 37_000
    num_layers: int = 6
    d_model: int = 512
    d_ff: int = 2048
    num_heads: int = 8
    key_dim: int | None = None
    value_dim: int | None = None
    dropout: float = 0.1
    norm_first: bool = False
    positions: str = "sinusoidal"
    tie_embeddings: bool = True
    max_length: int = 1024
    attention_bias: bool = False
    output_bias: bool = False
    activation: str = "relu"
    norm_epsilon: float = 1e-6

    def __post_init__(self) -> None:
        for name in ("num_layers", "d_model", "d_ff", "num_heads", "max_length"):
            value = getattr(self, name)
            require(value >= 1, f"model.{name}", "at least 1", value)
        require(self.vocab_size > EOS_ID + 1, "model.vocab_size", "above 4", self.vocab_size)
        require(self.d_model % 2 == 0, "model.d_model", "even", self.d_model)
        require(0 <= self.dropout < 1, "model.dropout", "in [0, 1)", self.dropout)
        for name in ("key_dim", "value_dim"):
            value = getattr(self, name)
            require(value is None or value >= 1, f"model.{name}", "at least 1 or None", value)
        require(self.positions in POSITIONS, "model.positions", f"one of {POSITIONS}",
                 self.positions)  # fmt: skip
        require(self.activation in ACTIVATIONS, "model.activation", f"one of {ACTIVATIONS}",
                self.activation)  # fmt: skip
        require(self.norm_epsilon > 0, "model.norm_epsilon", "above 0", self.norm_epsilon)
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
    tokenizer_kind: str = "bpe"
    normalization: str | None = None
    character_coverage: float = 1.0
    max_length: int = 256
    max_ratio: float = 4.0

    def __post_init__(self) -> None:
        require(self.tokenizer_kind in TOKENIZER_KINDS, "data.tokenizer_kind",
                 f"one of {TOKENIZER_KINDS}", self.tokenizer_kind)  # fmt: skip
        require(self.normalization in (None, *NORMALIZATIONS), "data.normalization",
                 f"one of {NORMALIZATIONS}", self.normalization)  # fmt: skip
        low, high = COVERAGES
        require(low <= self.character_coverage <= high, "data.character_coverage",
                 f"from {low} to {high}", self.character_coverage)  # fmt: skip
        if self.tokenizer:
            left_out = "left out with `data.tokenizer`, which holds its own"
            require(self.normalization is None, "data.normalization", left_out,
                     self.normalization)  # fmt: skip
            require(self.character_coverage == 1, "data.character_coverage", left_out,
                     self.character_coverage)  # fmt: skip
        require(self.max_length >= 8, "data.max_length", "at least 8", self.max_length)
        require(self.max_ratio >= 1, "data.max_ratio", "at least 1", self.max_ratio)


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

    steps: int = 100_000
    batch_tokens: int = 25_000
    max_tokens_per_device: int | None = None
    warmup_steps: int = 4_000
    learning_rate_scale: float = 1.0
    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-9
    label_smoothing: float = 0.1
    clip_norm: float = 0.0
    ema_decay: float = 0.0
    evaluate_every: int = 1_500
    best_by: str = "bleu"
    keep_last: int = 5
    average_last: int = 5
    patience: int = 0
    save_minutes: float = 10.0
    precision: str = "float32"
    jit_compile: bool = False
    deterministic: bool = False
    encoder_from: str = ""
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "warmup_steps", "evaluate_every", "average_last"):
            value = getattr(self, name)
            require(value >= 1, f"training.{name}", "at least 1", value)
        for name in ("clip_norm", "patience", "seed"):
            value = getattr(self, name)
            require(value >= 0, f"training.{name}", "0 or more", value)
        parts = self.max_tokens_per_device
        require(parts is None or parts >= 0, "training.max_tokens_per_device",
                "0 or more, or None", parts)  # fmt: skip
        require(self.seed < 2**32, "training.seed", "below 2**32", self.seed)
        for name in ("beta_1", "beta_2", "label_smoothing", "ema_decay"):
            value = getattr(self, name)
            require(0 <= value < 1, f"training.{name}", "in [0, 1)", value)
        for name in ("learning_rate_scale", "epsilon", "save_minutes"):
            value = getattr(self, name)
            require(value > 0, f"training.{name}", "above 0", value)
        require(self.keep_last >= self.average_last, "training.keep_last",
                 f"at least average_last ({self.average_last})", self.keep_last)  # fmt: skip
        require(self.best_by in BEST_BY, "training.best_by", f"one of {BEST_BY}", self.best_by)
        require(self.precision in PRECISIONS, "training.precision", f"one of {PRECISIONS}",
                 self.precision)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """Beam search (paper 6.1); the output has at most `max_extra_length` tokens more.

    Input is cut at `max_source_length` tokens, so that no text can take all memory and time.
    The output has at least `min_length` tokens and at most `max_length`, EOS counted, and does
    not hold the same `no_repeat_ngram` tokens in a row twice; all three are off at 0.
    """

    beam_size: int = 4
    alpha: float = 0.6
    max_extra_length: int = 50
    max_source_length: int = 1_024
    batch_tokens: int = 4_096
    min_length: int = 0
    max_length: int = 0
    no_repeat_ngram: int = 0

    def __post_init__(self) -> None:
        for name in ("beam_size", "max_extra_length", "max_source_length", "batch_tokens"):
            value = getattr(self, name)
            require(value >= 1, f"decoding.{name}", "at least 1", value)
        for name in ("min_length", "max_length", "no_repeat_ngram"):
            value = getattr(self, name)
            require(value >= 0, f"decoding.{name}", "0 or more", value)
        require(0 <= self.alpha <= MAX_ALPHA, "decoding.alpha", f"from 0 to {MAX_ALPHA}",
                 self.alpha)  # fmt: skip
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

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    seed: int = 1

    def __post_init__(self) -> None:
        low, high = TEMPERATURES
        require(low <= self.temperature <= high, "temperature", f"from {low} to {high}",
                 self.temperature)  # fmt: skip
        require(self.top_k >= 0, "top_k", "0 or more", self.top_k)
        require(0 < self.top_p <= 1, "top_p", "above 0 and at most 1", self.top_p)
        require(0 <= self.seed < 2**32, "seed", "in [0, 2**32)", self.seed)


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
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise UserError(f"The configuration is not a valid config.json: {error}.") from None
        names = {name: check_type(name, str, value) for name, value in names.items()}
        return cls(**names).replace(dict(assignments))

    def replace(self, values: dict[str, Any]) -> Self:
        """A copy with `{"section.field": value}` replaced, each checked against its type."""
        changes: dict[str, dict[str, Any]] = {}
        for dotted, value in values.items():
            section, name = find_field(dotted, _FIELDS)
            typed = check_type(dotted, _FIELDS[dotted], value)
            changes.setdefault(section, {})[name] = typed
        sections = {
            section: dataclasses.replace(getattr(self, section), **fields)
            for section, fields in changes.items()
        }
        return dataclasses.replace(self, **sections)

    def override(self, assignments: Sequence[str]) -> Self:
        """Applies `section.field=value` strings, as the command line's --set takes them."""
        return self.replace(parse_assignments(assignments, _FIELDS))


_SECTIONS = {
    "model": ModelConfig,
    "data": DataConfig,
    "training": TrainingConfig,
    "decoding": DecodingConfig,
}
_FIELDS = {
    f"{section}.{name}": hint
    for section, cls in _SECTIONS.items()
    for name, hint in typing.get_type_hints(cls).items()
}
