"""Checkpoints as bytes, to compare them bit for bit."""

from pathlib import Path

from tools.compare_commits.comparison import arrays


def bits_of(path: Path) -> dict[str, bytes]:
    """Returns the bytes of each array, except times."""
    return {name: array.tobytes() for name, array in arrays(path).items()}
