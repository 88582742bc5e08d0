"""The rows of the paper's Table 3 and their scaled configurations."""

import dataclasses
from collections.abc import Sequence
from typing import Any

from tf_transformer.config import Config, ModelConfig
from tf_transformer.config.presets import TABLE3, preset
from tf_transformer.errors import UserError, quoted

BASE = "base"
# In the order of the paper; "C-N2" is the preset "table3-C-N2".
ROWS = {name.removeprefix("table3-"): name for name in TABLE3}
GROUPS = ("A", "B", "C", "D", "E")

_WIDTHS = ("d_model", "d_ff")
_HEAD_WIDTHS = {"key_dim": "d_k", "value_dim": "d_v"}
_BASE_STEPS = TABLE3[BASE].training.steps


def select_rows(words: Sequence[str]) -> list[str]:
    """Returns the chosen rows in the order of the paper; all rows if `words` is empty.

    Args:
        words: rows ("C-N2"), presets ("table3-C-N2") or groups of rows ("C").

    Raises:
        UserError: if a word is none of these.
    """
    chosen: set[str] = set()
    for word in words or ROWS:
        name = word.removeprefix("table3-")
        if name in ROWS:
            chosen.add(name)
        elif word in GROUPS:
            chosen |= {row for row in ROWS if row.startswith(f"{word}-")}
        else:
            raise UserError(
                f"Table 3 has no row {quoted(word)}. Choose from {', '.join(ROWS)}, or "
                f"{', '.join(GROUPS)} for all rows of a letter."
            )
    return [row for row in ROWS if row in chosen]


@dataclasses.dataclass(frozen=True)
class Scale:
    """The scale of an experiment.

    `divisor` divides every width (d_model, d_ff, d_k, d_v). Layers, heads, dropout, label
    smoothing, batch and vocabulary are not scaled. `steps` are those of base; warm-up,
    evaluations and the steps of big scale in proportion. The schedule's peak learning rate,
    1 / sqrt(d_model * warmup_steps), grows as the widths and the warm-up shrink.
    """

    divisor: int
    steps: int

    @classmethod
    def of(cls, divisor: int, steps: int | None = None) -> "Scale":
        """Returns a scale whose steps are, by default, divided like the widths."""
        return cls(divisor, steps or -(-_BASE_STEPS // divisor))


def plan_rows(
    rows: Sequence[str], scale: Scale, values: dict[str, Any], overrides: Sequence[str]
) -> dict[str, Config]:
    """Returns the configuration of each row.

    Args:
        rows: from `select_rows`.
        scale: scale of widths and steps.
        values: `{"section.field": value}`, for every row.
        overrides: `section.field=value`, like arguments of --set, for every row.

    Raises:
        UserError: if a row is impossible at this scale, or a setting would undo a row.
    """
    impossible = [problem for row in rows if (problem := _problem(row, scale.divisor))]
    if impossible:
        advice = "Leave these rows out with --rows, or choose another scale."
        if _problem(BASE, scale.divisor):  # every ablation includes base
            advice = "Choose another scale: base itself is impossible at this one."
        raise UserError(
            f"At --scale {scale.divisor} some widths are not whole: {', '.join(impossible)}. "
            f"{advice}"
        )
    plain = {row: _scaled(row, scale) for row in rows}
    base = _scaled(BASE, scale)
    names = [*values, *(override.partition("=")[0].strip() for override in overrides)]
    _check_overrides(plain, base, names)
    configs = {row: config.override(overrides, values) for row, config in plain.items()}
    configured_base = base.override(overrides, values)
    before = {row: _differences(config, base) for row, config in plain.items()}
    undone = [row for row in rows if _differences(configs[row], configured_base) != before[row]]
    if undone:  # indirectly: rows A change d_k only through h, as long as key_dim is not set
        of_model = ", ".join(name for name in names if name.startswith("model."))
        raise UserError(_would_undo(of_model, undone))
    return configs


def head_width(model: ModelConfig, name: str) -> int:
    """Returns `key_dim` or `value_dim`; d_model / num_heads if the model does not set it."""
    return getattr(model, name) or model.d_model // model.num_heads


def change(config: Config, base: Config) -> str:
    """Returns a row's change in the paper's symbols, "h 4, d_k 128, d_v 128"; "" for base."""
    now = _by_symbol(config)
    return ", ".join(f"{name} {now[name]}" for name in _differences(config, base))


def _differences(config: Config, base: Config) -> list[str]:
    """Returns the symbols in which a row differs from base."""
    before, now = _by_symbol(base), _by_symbol(config)
    return [name for name in now if now[name] != before[name]]


def depth(model: ModelConfig) -> str:
    """Formats N, such as "6"; "12 + 1" if encoder and decoder differ."""
    layers, decoder_layers = model.num_layers, model.num_decoder_layers
    return f"{layers}" if layers == decoder_layers else f"{layers} + {decoder_layers}"


def _by_symbol(config: Config) -> dict[str, str]:
    model, training = config.model, config.training
    return {
        "N": depth(model),
        "d_model": f"{model.d_model}",
        "d_ff": f"{model.d_ff}",
        "h": f"{model.num_heads}",
        "d_k": f"{head_width(model, 'key_dim')}",
        "d_v": f"{head_width(model, 'value_dim')}",
        "P_drop": f"{model.dropout:g}",
        "eps_ls": f"{training.label_smoothing:g}",
        "positions": model.positions,
        "steps": f"{training.steps:,}",
    }


def _problem(row: str, divisor: int) -> str:
    """Explains why a row is impossible at a scale; empty if it is possible."""
    model = TABLE3[ROWS[row]].model
    widths = {name: getattr(model, name) for name in _WIDTHS}
    widths |= {letter: head_width(model, name) for name, letter in _HEAD_WIDTHS.items()}
    for name, width in widths.items():
        unit = 2 * divisor if name == "d_model" else divisor  # sines and cosines are paired
        if width % unit:
            even = " is not even" if name == "d_model" and not width % divisor else ""
            return f"{row} ({name} {width} / {divisor}{even})"
    return ""


def _scaled(row: str, scale: Scale) -> Config:
    config = preset(ROWS[row])
    model, training = config.model, config.training
    widths = {name: getattr(model, name) // scale.divisor for name in _WIDTHS}
    widths |= {
        name: getattr(model, name) // scale.divisor
        for name in _HEAD_WIDTHS
        if getattr(model, name)
    }
    steps = {
        name: max(1, round(getattr(training, name) * scale.steps / _BASE_STEPS))
        for name in ("steps", "warmup_steps", "evaluate_every")
    }
    return dataclasses.replace(
        config,
        model=dataclasses.replace(model, **widths),
        # Table 3 averages no checkpoints.
        training=dataclasses.replace(training, **steps, keep_last=1, average_last=1),
    )


def _check_overrides(plain: dict[str, Config], base: Config, names: Sequence[str]) -> None:
    before = base.flat()
    for name in names:
        if hint := {"training.seed": "--seeds", "training.steps": "--steps"}.get(name):
            raise UserError(f"ablate does not take --set {name}. Use {hint} instead.")
        undone = [
            row for row, config in plain.items() if config.flat().get(name) != before.get(name)
        ]
        if undone:
            raise UserError(_would_undo(name, undone))


def _would_undo(names: str, rows: Sequence[str]) -> str:
    return (
        f"--set {names} would undo the change of rows {', '.join(rows)}. "
        "Omit it, or omit these rows with --rows."
    )
