"""The rows of the paper's Table 3, and their configurations at a scale."""

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
    """Returns the chosen rows in the order of the paper; all rows without words.

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
                f"Table 3 has no row {quoted(word)}. There are: {', '.join(ROWS)}; and "
                f"{', '.join(GROUPS)} for the rows of a letter."
            )
    return [row for row in ROWS if row in chosen]


@dataclasses.dataclass(frozen=True)
class Scale:
    """The scale of an experiment.

    `divisor` divides every width (d_model, d_ff, d_k, d_v). Numbers of layers and of heads,
    dropout, label smoothing, batch and vocabulary stay. `steps` are those of base; warm-up,
    evaluations and the steps of big stay in proportion. The schedule's highest learning rate,
    1 / sqrt(d_model * warmup_steps), grows as the widths and the warm-up fall.
    """

    divisor: int
    steps: int

    @classmethod
    def of(cls, divisor: int, steps: int | None = None) -> "Scale":
        """Divides the steps like the widths, unless given; UserError for a number below 1."""
        if divisor < 1 or (steps is not None and steps < 1):
            raise UserError(
                "--scale and --steps must be at least 1. "
                f"Received: --scale {divisor}, --steps {steps}."
            )
        return cls(divisor, steps or -(-_BASE_STEPS // divisor))


def plan_rows(
    rows: Sequence[str], scale: Scale, values: dict[str, Any], overrides: Sequence[str]
) -> dict[str, Config]:
    """The configuration of each row.

    Args:
        rows: from `select_rows`.
        scale: of widths and steps.
        values: `{"section.field": value}` for every row.
        overrides: `section.field=value`, as --set takes them, for every row.

    Raises:
        UserError: if a row cannot be at this scale, or a setting would undo a row.
    """
    impossible = [problem for row in rows if (problem := _problem(row, scale.divisor))]
    if impossible:
        raise UserError(
            f"At --scale {scale.divisor} widths are not whole: {', '.join(impossible)}. "
            + _way_out(scale)
        )
    plain = {row: _scaled(row, scale) for row in rows}
    base, names = _scaled(BASE, scale), [*values, *map(_name, overrides)]
    _check_overrides(plain, base, names)
    configs = {row: config.replace(values).override(overrides) for row, config in plain.items()}
    configured_base = base.replace(values).override(overrides)
    before = {row: _differences(config, base) for row, config in plain.items()}
    undone = [row for row in rows if _differences(configs[row], configured_base) != before[row]]
    if undone:  # indirectly: d_k, which rows A change, follows from d_model and h unless set
        of_model = ", ".join(name for name in names if name.startswith("model."))
        raise UserError(_would_undo(of_model, undone))
    return configs


def head_width(model: ModelConfig, name: str) -> int:
    """`key_dim` or `value_dim`, also if the model leaves it to d_model / num_heads."""
    return getattr(model, name) or model.d_model // model.num_heads


def change(config: Config, base: Config) -> str:
    """A row's change in the paper's letters: "h 4, d_k 128, d_v 128"; empty for base."""
    now = _letters(config)
    return ", ".join(f"{name} {now[name]}" for name in _differences(config, base))


def _differences(config: Config, base: Config) -> list[str]:
    """The letters of a row's differences from base."""
    before, now = _letters(base), _letters(config)
    return [name for name in now if now[name] != before[name]]


def _letters(config: Config) -> dict[str, str]:
    model, training = config.model, config.training
    return {
        "N": f"{model.num_layers}",
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
    """The reason why a row is impossible; empty if it is possible."""
    model = TABLE3[ROWS[row]].model
    widths = {name: getattr(model, name) for name in _WIDTHS}
    widths |= {letter: head_width(model, name) for name, letter in _HEAD_WIDTHS.items()}
    for name, width in widths.items():
        unit = 2 * divisor if name == "d_model" else divisor  # sines and cosines go in pairs
        if width % unit:
            even = " is not even" if name == "d_model" and not width % divisor else ""
            return f"{row} ({name} {width} / {divisor}{even})"
    return ""


def _way_out(scale: Scale) -> str:
    """Advice for an impossible scale; base belongs to every ablation."""
    if _problem(BASE, scale.divisor):
        return "Choose another scale: base itself cannot be at this one."
    return "Leave these rows out with --rows, or choose another scale."


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


def _name(assignment: str) -> str:
    return assignment.partition("=")[0].strip()


def _check_overrides(plain: dict[str, Config], base: Config, names: Sequence[str]) -> None:
    before = base.flat()
    for name in names:
        if hint := {"training.seed": "--seeds", "training.steps": "--steps"}.get(name):
            raise UserError(f"--set {name} is not for ablate: give {hint}.")
        undone = [
            row for row, config in plain.items() if config.flat().get(name) != before.get(name)
        ]
        if undone:
            raise UserError(_would_undo(name, undone))


def _would_undo(names: str, rows: Sequence[str]) -> str:
    return (
        f"--set {names} would undo what makes the rows {', '.join(rows)}. "
        "Leave it out, or leave out these rows with --rows."
    )
