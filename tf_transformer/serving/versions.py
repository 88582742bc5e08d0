"""The version folders of a served model: those whose name is a number, as TF Serving has it."""

from pathlib import Path


def versions(base: Path) -> dict[int, Path]:
    """What `base` holds under a number, by that number; nothing if it is no folder."""
    parts = base.iterdir() if base.is_dir() else ()
    return {int(part.name): part for part in parts if is_version(part.name)}


def is_version(name: str) -> bool:
    """Whether a name is a number in the digits 0 to 9, and not a power or in another script."""
    return name.isascii() and name.isdecimal()
