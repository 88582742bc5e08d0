"""The settings in which a run departs from the paper."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tf_transformer.config import Config
from tf_transformer.config.presets import RECIPES, TABLE3
from tf_transformer.output import Table

_PAPER = RECIPES["paper"]
# Settings that are compared with Table 3, and the sections of the paper that describe them.
_MODEL_SOURCES = {
    "model.vocab_size": "5.1",
    "model.num_layers": "3.1",
    "model.d_model": "3.1",
    "model.d_ff": "3.3",
    "model.num_heads": "3.2.2",
    "model.key_dim": "3.2.2",
    "model.value_dim": "3.2.2",
    "model.dropout": "5.4",
    "model.positions": "3.5",
    "training.label_smoothing": "5.4",
    "training.steps": "5.2",
    "training.evaluate_every": "6.1, ten minutes",
    "training.average_last": "6.1",
}
# Names of the run and its files, and settings that do not affect its results.
_NEUTRAL = (
    "preset", "task", "data.train", "data.valid", "data.source", "data.target",
    "data.tokenizer", "model.max_length", "training.keep_last", "training.save_minutes",
    "training.seed", "training.deterministic",
)  # fmt: skip
# Always in effect, so always reported.
_ALWAYS = ("data.max_length", "data.max_ratio", "data.normalization", "data.character_coverage")


@dataclass(frozen=True)
class Departure:
    """A setting that differs from the paper: the run's value, the paper's, and its section."""

    setting: str
    run: Any
    paper: Any
    source: str


def reference(config: Config) -> str:
    """Returns the row of Table 3 to compare a run with: its preset's, or base."""
    return config.preset if config.preset in TABLE3 else "base"


def departures(config: Config) -> list[Departure]:
    """Lists the settings in which a configuration differs from the paper.

    The run's row of Table 3 overrides the recipe's label smoothing. A head size that is not set
    counts as d_model / num_heads.
    """
    expected = dict(_PAPER)
    row = _resolved(TABLE3[reference(config)])
    expected |= {setting: (row[setting], source) for setting, source in _MODEL_SOURCES.items()}
    if config.model.decoder_layers:
        expected["model.decoder_layers"] = (row["model.num_layers"], "3.1")
    values = _resolved(config)
    return [
        Departure(setting, values[setting], value, source)
        for setting, (value, source) in expected.items()
        if values[setting] != value
    ]


def additions(config: Config, measured: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Returns settings in effect that the paper lacks, such as precision and filters.

    `measured` holds settings read from the run's files, which override those of `config`.
    """
    known = {*_MODEL_SOURCES, "model.decoder_layers", *_PAPER, *_NEUTRAL}
    values, defaults = config.flat() | dict(measured or {}), Config().flat()
    return {
        setting: value
        for setting, value in values.items()
        if setting not in known and (setting in _ALWAYS or value != defaults[setting])
    }


def describe_departures(config: Config, measured: Mapping[str, Any] | None = None) -> list[str]:
    """Writes a line for each departure, then one for each setting that the paper lacks.

    For `measured` see `additions`.
    """
    differing = [
        (row.setting, _text(row.run), f"paper {_text(row.paper)}", f"({row.source})")
        for row in departures(config)
    ]
    added = [(setting, _text(value)) for setting, value in additions(config, measured).items()]
    return [
        f"{len(differing)} departures from the paper's {reference(config)} recipe",
        *_aligned(differing),
        "settings the paper does not have",
        *_aligned(added),
    ]


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"  {line}" for line in Table((), rows).text("plain").splitlines()] if rows else []


def _resolved(config: Config) -> dict[str, Any]:
    """Returns all settings, with numbers for the head sizes."""
    head = config.model.d_model // config.model.num_heads
    values = config.flat()
    return values | {
        name: values[name] or head for name in ("model.key_dim", "model.value_dim")
    }


def _text(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)
