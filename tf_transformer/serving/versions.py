"""The version folders of a served model: those whose name is a number, as TF Serving has it."""

import re
from pathlib import Path

from tf_transformer.errors import UserError

CARD = Path("assets.extra", "model_card.json")  # in a version's folder


def versions(base: Path) -> dict[int, Path]:
    """What `base` holds under a number, by that number; nothing if it is no folder."""
    parts = base.iterdir() if base.is_dir() else ()
    return {int(part.name): part for part in parts if is_version(part.name)}


def is_version(name: str) -> bool:
    """Whether a name is a number in the digits 0 to 9, and not a power or in another script."""
    return name.isascii() and name.isdecimal()


def check_readable(path: Path) -> None:
    """UserError for a path that TensorFlow cannot load a model from.

    It takes the path of the weights as a pattern, in which [1] stands for 1 and a backslash for
    nothing. "*" and "?" are safe, since they match themselves.
    """
    if re.search(r"\[.*\]|\\", str(path)):
        raise UserError(
            "A model's path must not contain [...] or a backslash: TensorFlow reads it as a "
            f"pattern and finds no weights there. Received: {path}. Choose another folder."
        )
