"""Compares two folders: arrays bit for bit, records without times, other files by bytes."""

import json
from dataclasses import dataclass
from itertools import chain, zip_longest
from pathlib import Path

import numpy as np

# Not compared, because they contain times or absolute paths.
_LEFT_OUT = ("logs", "versions.json", "card.md")
_ONLY = "only in"
_GROUPS = ("checkpoints", "data")  # folders of a run, one row each


@dataclass(frozen=True)
class Row:
    """A line of the report: a file, or a folder of a run.

    `difference` is the first difference, empty if there is none.
    """

    what: str
    files: int
    difference: str

    def __str__(self) -> str:
        verdict = f"DIFFERENT  {self.difference[:200]}" if self.difference else "equal"
        return f"{self.what:52} {self.files:3} files  {verdict}"


def compare(one: Path, other: Path) -> list[Row]:
    """Compares all files in the two folders, except _LEFT_OUT."""
    rows: dict[Path, list[str]] = {}
    for name in sorted(_files(one) | _files(other)):
        found = difference(one / name, other / name)
        group = next((folder for folder in name.parents if folder.name in _GROUPS), name)
        where = "" if group == name else f"{name.relative_to(group)}: "
        rows.setdefault(group, []).append(found and where + found)
    return [Row(str(what), len(each), _first(each)) for what, each in rows.items()]


def _first(differences: list[str]) -> str:
    """Returns the first difference of values or, if there is none, of names."""
    return min(filter(None, differences), key=lambda text: _ONLY in text, default="")


def _files(folder: Path) -> set[Path]:
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return {path for path in paths if not set(path.parts) & set(_LEFT_OUT)}


def difference(one: Path, other: Path) -> str:
    """Returns the first difference between two files; empty if there is none."""
    if not (one.exists() and other.exists()):
        return f"{_ONLY} {'OLD' if one.exists() else 'NEW'}"
    if one.suffix == ".npz":
        return _first_difference(arrays(one), arrays(other))
    if one.name == "config.json":
        return _first_difference(_settings(one), _settings(other))
    if one.suffix == ".jsonl":
        return _first_difference(_records(one), _records(other))
    lines = zip_longest(*(path.read_bytes().split(b"\n") for path in (one, other)))
    pairs = ((number, *pair) for number, pair in enumerate(lines, 1))
    return next((f"line {n}: {a!r}, {b!r}" for n, a, b in pairs if a != b), "")


def arrays(path: Path) -> dict[str, np.ndarray]:
    """Returns a checkpoint's arrays, except times and the members' list."""
    with np.load(path) as archive:
        return {
            name: archive[name]
            for name in archive
            if name not in ("progress/period_seconds", "members")
        }


def _settings(path: Path) -> dict[str, object]:
    """Returns each setting of config.json as JSON, without the task, which 1.1.0 wrote."""
    record = json.loads(path.read_text("utf-8"))
    sections = {name: value for name, value in record.items() if name != "task"}
    return {
        f"{section}.{name}": json.dumps(value)
        for section, settings in sections.items()
        for name, value in (settings if isinstance(settings, dict) else {"": settings}).items()
    }


def _records(path: Path) -> dict[str, object]:
    """Returns {"line 1: valid_loss": 3.2, ...}, without times."""
    return {
        f"line {number}: {name}": value
        for number, line in enumerate(path.read_text("utf-8").splitlines(), 1)
        for name, value in json.loads(line).items()
        if name != "time" and "second" not in name
    }


def _first_difference(one: dict, other: dict) -> str:
    """Returns the first difference of common values or, if there is none, of names."""
    common = (_values_differ(name, one[name], other[name]) for name in one if name in other)
    odd = (f"{x}: {_ONLY} {'OLD' if x in one else 'NEW'}" for x in sorted({*one} ^ {*other}))
    return next(filter(None, chain(common, odd)), "")


def _values_differ(name: str, one: object, other: object) -> str:
    one, other = np.asarray(one), np.asarray(other)
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return f"{name}: {one.dtype} {one.shape}, {other.dtype} {other.shape}"
    if one.tobytes() == other.tobytes():
        return ""
    if one.dtype.kind != "f" or not one.ndim:
        return f"{name}: {one}, {other}"
    return f"{name}: by at most {np.abs(one - other).max():.2g}"
