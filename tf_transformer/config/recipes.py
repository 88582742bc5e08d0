"""Recipes of training, each of which goes with any model; and what departs from them.

A recipe is absolute in the settings that it names, whatever the preset says, and leaves the
others alone: sizes, dropout, steps and data are the preset's or the user's. `paper` is the
paper's; `t2t` what the code of its authors has by default (tensor2tensor, transformer_base, its
third version: only transformer_base_v1 is the paper); `modern` what later work found to be
robust, at small scale too.
"""

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from tf_transformer.config.presets import TABLE3
from tf_transformer.config.sections import Config
from tf_transformer.errors import UserError, quoted


@dataclass(frozen=True)
class Setting:
    """A value that a recipe gives, and where it is from."""

    value: Any
    source: str


@dataclass(frozen=True)
class Recipe:
    """Settings by name, and what the source has beyond what this package can be set to."""

    settings: dict[str, Setting]
    missing: tuple[str, ...] = ()

    def apply(self, config: Config) -> Config:
        """The configuration with every setting of the recipe."""
        return config.replace({name: each.value for name, each in self.settings.items()})


RECIPES = {
    "paper": Recipe(
        {
            "model.norm_first": Setting(False, "3.1"),
            "model.tie_embeddings": Setting(True, "3.4"),
            "data.tokenizer_kind": Setting("bpe", "5.1"),
            "training.batch_tokens": Setting(25_000, "5.1"),
            "training.warmup_steps": Setting(4_000, "5.3"),
            "training.learning_rate_scale": Setting(1.0, "5.3"),
            "training.beta_1": Setting(0.9, "5.3"),
            "training.beta_2": Setting(0.98, "5.3"),
            "training.epsilon": Setting(1e-9, "5.3"),
            "training.label_smoothing": Setting(0.1, "5.4"),
            "training.clip_norm": Setting(0.0, "5.3, which has none"),
            "training.ema_decay": Setting(0.0, "6.1, which averages checkpoints"),
            "training.patience": Setting(0, "5.2, a fixed number of steps"),
            "decoding.beam_size": Setting(4, "6.1"),
            "decoding.alpha": Setting(0.6, "6.1"),
            "decoding.max_extra_length": Setting(50, "6.1"),
        }
    ),
    "t2t": Recipe(
        {
            "model.norm_first": Setting(True, "layer_preprocess_sequence n, since v2"),
            "model.tie_embeddings": Setting(True, "shared_embedding_and_softmax_weights"),
            "training.batch_tokens": Setting(32_768, "batch_size 4,096 on each of 8 GPUs"),
            "training.warmup_steps": Setting(8_000, "learning_rate_warmup_steps, since v2"),
            "training.learning_rate_scale": Setting(2.0, "learning_rate_constant, in v3"),
            "training.beta_1": Setting(0.9, "optimizer_adam_beta1"),
            "training.beta_2": Setting(0.997, "optimizer_adam_beta2, in v3"),
            "training.epsilon": Setting(1e-9, "optimizer_adam_epsilon"),
            "training.label_smoothing": Setting(0.1, "label_smoothing"),
            "training.clip_norm": Setting(0.0, "clip_grad_norm"),
            "data.max_length": Setting(256, "max_length"),
            "decoding.beam_size": Setting(4, "its documented decoding"),
            "decoding.alpha": Setting(0.6, "its documented decoding"),
            "decoding.max_extra_length": Setting(100, "extra_length"),
        },
        missing=(
            "attention_dropout 0.1 and relu_dropout 0.1 (since v2)",
            "an embedding of the target space",
        ),
    ),
    "modern": Recipe(
        {
            "model.norm_first": Setting(True, "Xiong et al. 2020; docs/results.md, Multi30k"),
            "model.tie_embeddings": Setting(True, "the paper, 3.4"),
            "training.batch_tokens": Setting(50_000, "larger: Ott et al. 2018, Popel 2018"),
            "training.warmup_steps": Setting(4_000, "the paper, 5.3"),
            "training.learning_rate_scale": Setting(1.25, "docs/results.md, Multi30k"),
            "training.beta_1": Setting(0.9, "the paper, 5.3"),
            "training.beta_2": Setting(0.98, "the paper, 5.3"),
            "training.epsilon": Setting(1e-9, "the paper, 5.3"),
            "training.label_smoothing": Setting(0.1, "the paper, 5.4"),
            "training.keep_last": Setting(10, "docs/results.md, Multi30k"),
            "training.average_last": Setting(10, "docs/results.md, Multi30k"),
        }
    ),
}

# Where the paper says what its models are: these settings are compared with a row of Table 3.
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
# What names a run and its files, or has no influence on what comes out.
_NEUTRAL = (
    "preset", "task", "data.train", "data.valid", "data.source", "data.target",
    "data.tokenizer", "model.max_length", "training.keep_last", "training.save_minutes",
    "training.seed", "training.deterministic",
)  # fmt: skip
# They are always at work, so they are always told.
_ALWAYS = ("data.max_length", "data.max_ratio", "data.normalization", "data.character_coverage")
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True)
class Departure:
    """A setting that differs from a recipe: the run's value, the recipe's, and its source."""

    setting: str
    run: Any
    recipe: Any
    source: str


def recipe(name: str) -> Recipe:
    """The recipe called `name`; an unknown name is a UserError with the nearest one."""
    if name not in RECIPES:
        near = difflib.get_close_matches(name, RECIPES, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise UserError(
            f"There is no recipe {quoted(name)}.{hint} There are: {', '.join(RECIPES)}."
        )
    return RECIPES[name]


def reference(config: Config) -> str:
    """The row of Table 3 that a run is compared with: its preset's, or base."""
    return config.preset if config.preset in TABLE3 else "base"


def departures(config: Config, name: str) -> list[Departure]:
    """In what a configuration differs from a recipe.

    For the paper that is also the model of its row of Table 3, whose steps, dropout and label
    smoothing are the row's. Sizes per head count as what they come to.
    """
    expected = dict(recipe(name).settings)
    if name == "paper":
        row = _plain(TABLE3[reference(config)])
        expected |= {
            setting: Setting(row[setting], source) for setting, source in _MODEL_SOURCES.items()
        }
    values = _plain(config)
    return [
        Departure(setting, values[setting], wanted.value, wanted.source)
        for setting, wanted in expected.items()
        if values[setting] != wanted.value
    ]


def additions(config: Config, own: Mapping[str, Any] = _NOTHING) -> dict[str, Any]:
    """Settings at work that the paper knows nothing of, such as precision and filters.

    `own` are settings that the run's files tell of themselves: they hold, whatever `config`
    says.
    """
    known = {*_MODEL_SOURCES, *RECIPES["paper"].settings, *_NEUTRAL}
    values, defaults = config.flat() | own, Config().flat()
    return {
        setting: value
        for setting, value in values.items()
        if setting not in known and (setting in _ALWAYS or value != defaults[setting])
    }


def describe_departures(
    config: Config, name: str, own: Mapping[str, Any] = _NOTHING
) -> list[str]:
    """A line for each departure, then one for each setting that the paper does not have.

    `own` is as in `additions`.
    """
    found = departures(config, name)
    versus = f"{name}'s" if name != "paper" else f"the paper's {reference(config)}"
    lines = [f"{len(found)} departures from {versus} recipe"] + aligned(
        [
            (each.setting, _text(each.run), f"{name} {_text(each.recipe)}", f"({each.source})")
            for each in found
        ]
    )
    lines += [f"{name} has, and this package has not: {each}" for each in recipe(name).missing]
    if name == "paper":
        added = [(setting, _text(value)) for setting, value in additions(config, own).items()]
        lines += ["settings the paper does not have", *aligned(added)]
    return lines


def aligned(rows: list[tuple[str, ...]]) -> list[str]:
    """Rows as lines whose columns begin under one another."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  " + "  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


def _plain(config: Config) -> dict[str, Any]:
    head = config.model.d_model // config.model.num_heads
    values = config.flat()
    sizes = {name: values[name] or head for name in ("model.key_dim", "model.value_dim")}
    return values | sizes


def _text(value: Any) -> str:
    return f"{value:,}" if type(value) is int else str(value)
