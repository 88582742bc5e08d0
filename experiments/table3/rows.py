"""The rows of Table 3: the paper's figures, and settings at a scale."""

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml

from tf_transformer import UserError, preset

BASE = "base"
GROUPS = ("A", "B", "C", "D", "E")
FILES = Path(__file__).parent / "rows"

Settings: TypeAlias = dict[str, Any]  # by "section.field", and "preset"


@dataclass(frozen=True)
class Printed:
    """A row of Table 3, measured on newstest2013 without averaging checkpoints."""

    perplexity: float  # per word piece
    bleu: float  # tokenised, as was usual in 2017
    millions: int | None = None  # of parameters; None where the table leaves it blank


# By row, in the order of the paper. Where the table leaves the size blank (rows A, D, E), it is
# that of base.
PRINTED = {
    "base": Printed(4.92, 25.8, 65),
    "A-h1": Printed(5.29, 24.9),
    "A-h4": Printed(5.00, 25.5),
    "A-h16": Printed(4.91, 25.8),
    "A-h32": Printed(5.01, 25.4),
    "B-dk16": Printed(5.16, 25.1, 58),
    "B-dk32": Printed(5.01, 25.4, 60),
    "C-N2": Printed(6.11, 23.7, 36),
    "C-N4": Printed(5.19, 25.3, 50),
    "C-N8": Printed(4.88, 25.5, 80),
    "C-d256": Printed(5.75, 24.5, 28),
    "C-d1024": Printed(4.66, 26.0, 168),
    "C-ff1024": Printed(5.12, 25.4, 53),
    "C-ff4096": Printed(4.75, 26.2, 90),
    "D-drop0.0": Printed(5.77, 24.6),
    "D-drop0.2": Printed(4.95, 25.5),
    "D-ls0.0": Printed(4.67, 25.3),
    "D-ls0.2": Printed(5.47, 25.7),
    "E-learned": Printed(4.92, 25.7),
    "big": Printed(4.33, 26.4, 213),
}


def select_rows(words: Sequence[str]) -> list[str]:
    """Returns the chosen rows in the order of the paper; all rows if `words` is empty.

    A word is a row ("C-N2") or a group of rows ("C"); any other raises UserError.
    """
    for word in words:
        if word not in PRINTED and word not in GROUPS:
            raise UserError(
                f"Table 3 has no row {word!r}. Choose from {', '.join(PRINTED)}, or "
                f"{', '.join(GROUPS)} for all rows of a letter."
            )
    return [row for row in PRINTED if not words or row in words or row[0] in words]


def settings_of(row: str) -> Settings:
    """Returns all settings of a row: those of its preset, and of its file if it has one."""
    file = FILES / f"{row}.yaml"
    record: dict[str, Any] = {"preset": row}
    if file.exists():
        record = yaml.safe_load(file.read_text("utf-8"))
    name = record.pop("preset")
    whole = preset(name)
    settings: Settings = {"preset": name}
    for section in ("model", "training"):
        fields = dataclasses.asdict(getattr(whole, section)) | record.get(section, {})
        settings |= {f"{section}.{field}": value for field, value in fields.items()}
    return settings


_SCALED = ("d_model", "d_ff", "key_dim", "value_dim")
_TIMES = ("steps", "warmup_steps", "evaluate_every")


def plan_rows(
    rows: Sequence[str],
    divisor: int = 1,
    steps: int | None = None,
    given: Mapping[str, Any] | None = None,
) -> dict[str, Settings]:
    """Returns the settings of base and of `rows` at a scale.

    The scale divides every width (d_model, d_ff, d_k, d_v). Layers, heads, dropout, label
    smoothing, batch and vocabulary are not scaled. The schedule's peak learning rate,
    1 / sqrt(d_model * warmup_steps), grows as the widths and the warm-up shrink.

    `steps`, those of base, are by default divided like the widths; warm-up, evaluations and the
    steps of big scale in proportion. `given` settings are for every row. Raises UserError if a
    row is impossible at this scale, or a given setting would undo a row.
    """
    given = dict(given or {})
    for name, option in (("training.seed", "--seeds"), ("training.steps", "--steps")):
        if name in given:
            raise UserError(f"--set {name} is not for rows. Use {option} instead.")
    of_base = settings_of(BASE)["training.steps"]
    steps = steps or -(-of_base // divisor)
    plain = {row: _scaled(row, divisor, steps / of_base) for row in [BASE, *rows]}
    planned = {row: settings | given for row, settings in plain.items()}
    undone = [
        row
        for row, settings in plain.items()
        if change(planned[row], planned[BASE]).keys() != change(settings, plain[BASE]).keys()
    ]
    if undone:
        names = [name for name in given if name.startswith(("model.", "training.label"))]
        raise UserError(
            f"--set {', '.join(names)} would undo the change of rows {', '.join(undone)}. "
            "Omit it, or omit these rows with --rows."
        )
    return planned


def _scaled(row: str, divisor: int, share: float) -> Settings:
    settings = settings_of(row)
    key_dim, value_dim = _head_sizes(settings)
    effective = settings | {"model.key_dim": key_dim, "model.value_dim": value_dim}
    for field in _SCALED:
        name, size = f"model.{field}", effective[f"model.{field}"]
        # d_model has to be even, since sines and cosines are paired.
        if size % (2 * divisor if field == "d_model" else divisor):
            whole = "an even" if field == "d_model" else "a whole"
            raise UserError(
                f"At --scale {divisor}, {field} of row {row} must stay {whole} number. "
                f"Received: {size} / {divisor}. Choose another scale, or other rows."
            )
        if settings[name]:
            settings[name] = size // divisor
    for name in (f"training.{field}" for field in _TIMES):
        settings[name] = max(1, round(settings[name] * share))
    # Table 3 averages no checkpoints.
    return settings | {"training.keep_last": 1, "training.average_last": 1}


def _head_sizes(settings: Settings) -> tuple[int, int]:
    """Returns d_k and d_v; d_model / num_heads where the model does not set them."""
    usual = settings["model.d_model"] // settings["model.num_heads"]
    return settings["model.key_dim"] or usual, settings["model.value_dim"] or usual


def change(settings: Settings, base: Settings) -> dict[str, str]:
    """Returns what a row changes from base, by the paper's symbol, such as {"h": "4"}."""
    before = _by_symbol(base)
    return {name: each for name, each in _by_symbol(settings).items() if each != before[name]}


def _by_symbol(settings: Settings) -> dict[str, str]:
    key_dim, value_dim = _head_sizes(settings)
    return {
        "N": f"{settings['model.num_layers']}",
        "d_model": f"{settings['model.d_model']}",
        "d_ff": f"{settings['model.d_ff']}",
        "h": f"{settings['model.num_heads']}",
        "d_k": f"{key_dim}",
        "d_v": f"{value_dim}",
        "P_drop": f"{settings['model.dropout']:g}",
        "eps_ls": f"{settings['training.label_smoothing']:g}",
        "positions": settings["model.positions"],
        "steps": f"{settings['training.steps']:,}",
    }


def as_yaml(settings: Settings) -> str:
    """Returns settings as a file for `train.py --config`."""
    record: dict[str, Any] = {"preset": settings["preset"]}
    for name, value in settings.items():
        section, _, field = name.partition(".")
        if field and value is not None:
            record.setdefault(section, {})[field] = value
    return yaml.safe_dump(record, sort_keys=False)
