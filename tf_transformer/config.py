"""The configuration of a run: frozen dataclasses, overrides, JSON round trip; no TensorFlow."""

import dataclasses
import difflib
import json
import math
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Self

from tf_transformer.errors import UserError

PAD_ID, UNK_ID, BOS_ID, EOS_ID = 0, 1, 2, 3

POSITIONS = ("sinusoidal", "learned")
TOKENIZER_KINDS = ("bpe", "unigram")
PRECISIONS = ("float32", "mixed_bfloat16", "mixed_float16")


def _require(condition: bool, name: str, expected: str, received: object) -> None:
    if not condition:
        raise UserError(f"`{name}` must be {expected}. Received: {received!r}.")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The architecture (paper 3): the arguments of `tf_transformer.Transformer`.

    `key_dim` and `value_dim` are sizes per head; None means d_model / num_heads.
    `max_length` limits the input only where positions are learned.
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

    def __post_init__(self) -> None:
        for name in ("num_layers", "d_model", "d_ff", "num_heads", "max_length"):
            value = getattr(self, name)
            _require(value >= 1, f"model.{name}", "at least 1", value)
        _require(self.vocab_size > EOS_ID + 1, "model.vocab_size", "above 4", self.vocab_size)
        _require(self.d_model % 2 == 0, "model.d_model", "even", self.d_model)
        _require(0 <= self.dropout < 1, "model.dropout", "in [0, 1)", self.dropout)
        for name in ("key_dim", "value_dim"):
            value = getattr(self, name)
            _require(value is None or value >= 1, f"model.{name}", "at least 1 or None", value)
        _require(self.positions in POSITIONS, "model.positions", f"one of {POSITIONS}",
                 self.positions)  # fmt: skip
        if self.d_model % self.num_heads and None in (self.key_dim, self.value_dim):
            raise UserError(
                "`model.num_heads` must divide `model.d_model`, unless key_dim and value_dim "
                f"are given. Received: num_heads={self.num_heads}, d_model={self.d_model}."
            )


@dataclass(frozen=True, kw_only=True)
class DataConfig:
    """The parallel text: `train` and `valid` are prefixes, PREFIX.<lang> or PREFIX.<lang>.gz.

    `tokenizer` is the path of an existing SentencePiece model; empty means that one of
    `model.vocab_size` pieces is trained on the training text (both languages, shared).
    `max_length` (tokens with EOS, either side) and `max_ratio` (longer side / shorter side)
    filter the training pairs, and the dev pairs of the dev loss; dev BLEU is of all of them.
    """

    train: tuple[str, ...] = ()
    valid: tuple[str, ...] = ()
    source: str = ""
    target: str = ""
    tokenizer: str = ""
    tokenizer_kind: str = "bpe"
    max_length: int = 256
    max_ratio: float = 4.0

    def __post_init__(self) -> None:
        _require(self.tokenizer_kind in TOKENIZER_KINDS, "data.tokenizer_kind",
                 f"one of {TOKENIZER_KINDS}", self.tokenizer_kind)  # fmt: skip
        _require(self.max_length >= 8, "data.max_length", "at least 8", self.max_length)
        _require(self.max_ratio >= 1, "data.max_ratio", "at least 1", self.max_ratio)


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """The recipe (paper 5). `batch_tokens` counts the positions of one side of a batch.

    `evaluate_every` (steps) sets when dev loss and BLEU are measured and a checkpoint is
    written; `keep_last` checkpoints stay on disk, the mean of the last `average_last` is tried
    at the end. `patience` (evaluations without a better dev BLEU) and `clip_norm` are off at 0,
    as in the paper.
    """

    steps: int = 100_000
    batch_tokens: int = 25_000
    warmup_steps: int = 4_000
    learning_rate_scale: float = 1.0
    beta_1: float = 0.9
    beta_2: float = 0.98
    epsilon: float = 1e-9
    label_smoothing: float = 0.1
    clip_norm: float = 0.0
    evaluate_every: int = 1_500
    keep_last: int = 5
    average_last: int = 5
    patience: int = 0
    precision: str = "float32"
    jit_compile: bool = False
    seed: int = 1

    def __post_init__(self) -> None:
        for name in ("steps", "batch_tokens", "warmup_steps", "evaluate_every", "average_last"):
            value = getattr(self, name)
            _require(value >= 1, f"training.{name}", "at least 1", value)
        for name in ("clip_norm", "patience", "seed"):
            value = getattr(self, name)
            _require(value >= 0, f"training.{name}", "0 or more", value)
        _require(self.seed < 2**32, "training.seed", "below 2**32", self.seed)
        for name in ("beta_1", "beta_2", "label_smoothing"):
            value = getattr(self, name)
            _require(0 <= value < 1, f"training.{name}", "in [0, 1)", value)
        for name in ("learning_rate_scale", "epsilon"):
            value = getattr(self, name)
            _require(value > 0, f"training.{name}", "above 0", value)
        _require(self.keep_last >= self.average_last, "training.keep_last",
                 f"at least average_last ({self.average_last})", self.keep_last)  # fmt: skip
        _require(self.precision in PRECISIONS, "training.precision", f"one of {PRECISIONS}",
                 self.precision)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class DecodingConfig:
    """Beam search (paper 6.1); the output has at most `max_extra_length` tokens more.

    Input is cut at `max_source_length` tokens, so that no text can take all memory and time.
    """

    beam_size: int = 4
    alpha: float = 0.6
    max_extra_length: int = 50
    max_source_length: int = 1_024
    batch_tokens: int = 4_096

    def __post_init__(self) -> None:
        for name in ("beam_size", "max_extra_length", "max_source_length", "batch_tokens"):
            value = getattr(self, name)
            _require(value >= 1, f"decoding.{name}", "at least 1", value)
        _require(self.alpha >= 0, "decoding.alpha", "0 or more", self.alpha)


@dataclass(frozen=True, kw_only=True)
class Config:
    """Everything that defines a run; stored as config.json in its directory."""

    preset: str = ""
    model: ModelConfig = field(default_factory=ModelConfig)
    data: DataConfig = field(default_factory=DataConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def to_json(self) -> str:
        return json.dumps(dataclasses.asdict(self), indent=2, ensure_ascii=False) + "\n"

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Reads what `to_json` wrote; an unknown or wrongly typed field is a UserError."""
        try:
            record = json.loads(text)
            preset = record.pop("preset")
            assignments = [
                (f"{section}.{name}", value)
                for section, fields in record.items()
                for name, value in fields.items()
            ]
        except (json.JSONDecodeError, AttributeError, KeyError, TypeError) as error:
            raise UserError(f"The configuration is not a valid config.json: {error}.") from None
        return cls(preset=_typed("preset", str, preset)).replace(dict(assignments))

    def replace(self, values: dict[str, Any]) -> Self:
        """A copy with `{"section.field": value}` replaced, each checked against its type."""
        changes: dict[str, dict[str, Any]] = {}
        for dotted, value in values.items():
            section, name = _find(dotted)
            changes.setdefault(section, {})[name] = _typed(dotted, _FIELDS[dotted], value)
        sections = {
            section: dataclasses.replace(getattr(self, section), **fields)
            for section, fields in changes.items()
        }
        return dataclasses.replace(self, **sections)

    def override(self, assignments: Sequence[str]) -> Self:
        """Applies `section.field=value` strings, as the command line's --set takes them."""
        values = {}
        for assignment in assignments:
            dotted, equals, text = assignment.partition("=")
            if not equals:
                raise UserError(
                    f"--set expects section.field=value, such as model.dropout=0.3. "
                    f"Received: {assignment!r}."
                )
            _find(dotted.strip())
            values[dotted.strip()] = _parse(_FIELDS[dotted.strip()], text.strip())
        return self.replace(values)


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


def _find(dotted: str) -> tuple[str, str]:
    if dotted not in _FIELDS:
        by_name = {full.partition(".")[2]: full for full in _FIELDS}
        name = dotted.rpartition(".")[2]
        near = difflib.get_close_matches(dotted, _FIELDS, n=1, cutoff=0.7) or [
            by_name[match] for match in difflib.get_close_matches(name, by_name, n=1)
        ]
        hint = f" Did you mean {near[0]!r}?" if near else f" There are: {', '.join(_FIELDS)}."
        raise UserError(f"There is no setting {dotted!r}.{hint}")
    section, _, name = dotted.partition(".")
    return section, name


def _parse(hint: Any, text: str) -> Any:
    """Reads a command-line value: JSON where it is JSON, comma-separated lists, else text."""
    if hint == tuple[str, ...]:
        return [part for part in text.split(",") if part]
    if hint is str:
        return text
    try:
        return json.loads({"None": "null", "True": "true", "False": "false"}.get(text, text))
    except json.JSONDecodeError:
        return text


def _typed(dotted: str, hint: Any, value: Any) -> Any:
    if hint == tuple[str, ...]:
        strings = isinstance(value, (list, tuple)) and all(type(v) is str for v in value)
        _require(strings, dotted, "a list of strings", value)
        return tuple(value)
    allowed = hint.__args__ if isinstance(hint, types.UnionType) else (hint,)
    if float in allowed and type(value) is int:
        return float(value)
    if int in allowed and type(value) is float and value.is_integer():
        return int(value)
    if type(value) not in allowed:
        names = " or ".join("None" if a is type(None) else getattr(a, "__name__", str(a))
                            for a in allowed)  # fmt: skip
        raise UserError(f"`{dotted}` must be {names}. Received: {value!r}.")
    if type(value) is float:
        _require(math.isfinite(value), dotted, "a finite number", value)
    return value
