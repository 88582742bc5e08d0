"""Dev scores stored in a file of weights, so that they stay with the weights."""

from pathlib import Path

import numpy as np

from tf_transformer.run.npz import Arrays, is_valid, read_arrays, read_named, write_arrays
from tf_transformer.run.records import Record

_DEV_SET = "dev_set"
_BEST, _RECORD = "best/", "record/"


def add_record(path: Path, record: Record) -> None:
    """Adds the evaluation of averaged weights to their file; a step's is in the history.

    Args:
        path: the file of weights.
        record: numbers and strings by name.
    """
    values = {f"{_RECORD}{name}": np.array(value) for name, value in record.items()}
    write_arrays(path, read_arrays(path, prefix="model/") | values)


def read_record(path: Path) -> Record | None:
    """Reads the evaluation in a file of weights; None if it has none or is damaged."""
    if not is_valid(path):
        return None
    return {name: value.item() for name, value in read_named(path, _RECORD).items()} or None


def save_best(source: Path, best: Path, scores: dict[str, float], dev_set: str = "") -> None:
    """Copies weights to best.npz, with the scores that chose them and their dev set."""
    marks: Arrays = {f"{_BEST}{name}": np.array(score, float) for name, score in scores.items()}
    marks[_DEV_SET] = np.array(dev_set)
    record = read_arrays(source, prefix=_RECORD)
    write_arrays(best, read_arrays(source, prefix="model/") | record | marks)


def best_scores(best: Path) -> dict[str, float]:
    """Reads the scores that chose the best weights; none if missing or damaged."""
    if not is_valid(best):
        return {}
    return {
        name: float(value)
        for name, value in read_named(best, _BEST).items()
        if not value.shape and value.dtype.kind == "f"
    }


def best_dev_set(best: Path) -> str | None:
    """Reads the dev set on which the best weights were chosen; None if it is unknown."""
    mark = read_arrays(best, prefix=_DEV_SET).get(_DEV_SET) if is_valid(best) else None
    return None if mark is None else str(mark)
