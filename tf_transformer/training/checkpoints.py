"""Checkpoints: one .npz file each, with everything that training needs to go on exactly.

A file holds the model's weights under their Keras paths ("model/..."), the optimizer's state
("optimizer/...") and the dropout seeds ("seed/..."), which no Keras writer saves. Zip's own
checksums tell a damaged file from a good one.
"""

import re
import struct
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tf_transformer.errors import UserError
from tf_transformer.files import replacing

if TYPE_CHECKING:  # commands look into a run directory before they wait for TensorFlow
    import keras


Arrays = dict[str, np.ndarray]

# What zipfile and NumPy raise where bytes of an archive are missing or changed.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)


def save_checkpoint(path: Path, model: "keras.Model") -> None:
    """Writes weights, optimizer state and dropout seeds; `path` appears whole or not at all."""
    variables = _model_variables(model) | _training_variables(model)
    _write(path, {name: np.asarray(variable) for name, variable in variables.items()})


def restore_checkpoint(path: Path, model: "keras.Model") -> None:
    """Restores all of `save_checkpoint` into a compiled model of the same configuration."""
    if not model.optimizer.built:  # a second time would replace the state of a loss scale
        model.optimizer.build(model.trainable_variables)
    _assign(path, _read(path), _model_variables(model) | _training_variables(model))


def load_weights(path: Path, model: "keras.Model") -> None:
    """Loads the model's weights only, for decoding."""
    _assign(path, _read(path, prefix="model/"), _model_variables(model))


def average_checkpoints(paths: Sequence[Path], output: Path) -> None:
    """Writes the mean of the model weights of several checkpoints (paper 6.1)."""
    totals: Arrays = {}
    for path in paths:
        for name, value in _read(path, prefix="model/").items():
            totals[name] = totals.get(name, 0) + value.astype(np.float64) / len(paths)
    _write(output, {name: value.astype(np.float32) for name, value in totals.items()})


class CheckpointFolder:
    """The checkpoints of one run: step-00001500.npz and so on, best.npz and average.npz."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.best = path / "best.npz"
        self.average = path / "average.npz"

    def step_path(self, step: int) -> Path:
        return self.path / f"step-{step:08d}.npz"

    def find(self, which: str) -> Path:
        """The file of "best", "average", "last" or a step; UserError if there is none."""
        steps = self.steps()
        paths = {"best": self.best, "average": self.average}
        paths |= {str(step): self.step_path(step) for step in steps}
        if steps:
            paths["last"] = self.step_path(steps[-1])
        there = [name for name, path in paths.items() if path.exists()]
        if which not in there:
            found = f"There are: {', '.join(there)}" if there else "There is none yet"
            raise UserError(f"{self.path} has no checkpoint {which!r}. {found}.")
        return paths[which]

    def steps(self) -> list[int]:
        """Steps of which there is a checkpoint, in order."""
        names = (re.fullmatch(r"step-(\d+)\.npz", file.name) for file in self.path.glob("*"))
        return sorted(int(name[1]) for name in names if name)

    def last(self, count: int) -> list[Path]:
        """The newest `count` checkpoints, oldest first."""
        return [self.step_path(step) for step in self.steps()[-count:]]

    def rotate(self, keep: int) -> None:
        """Deletes all but the newest `keep`, and what killed processes left half written."""
        for step in self.steps()[:-keep]:
            self.step_path(step).unlink()
        for leftover in self.path.glob(".*.npz.*.tmp"):
            leftover.unlink()

    def latest_valid(self) -> tuple[int, Path] | None:
        """The newest checkpoint whose checksums hold, or None."""
        for step in reversed(self.steps()):
            if is_valid(self.step_path(step)):
                return step, self.step_path(step)
        return None


def is_valid(path: Path) -> bool:
    """Whether the file is a complete zip archive and every member has its checksum."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except _DAMAGE:
        return False


def _model_variables(model: "keras.Model") -> dict[str, "keras.Variable"]:
    return {f"model/{v.path}": v for v in model.trainable_variables}


def _training_variables(model: "keras.Model") -> dict[str, "keras.Variable"]:
    variables = {f"optimizer/{v.path}": v for v in model.optimizer.variables}
    seeds = [v for v in model.non_trainable_variables if "seed_generator" in v.path]
    # The paths of seeds carry a counter of the process: their order is what is stable.
    return variables | {f"seed/{i:04d}": seed for i, seed in enumerate(seeds)}


def _write(path: Path, arrays: Arrays) -> None:
    with replacing(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def _read(path: Path, prefix: str = "") -> Arrays:
    try:
        with np.load(path) as archive:
            return {name: archive[name] for name in archive.files if name.startswith(prefix)}
    except FileNotFoundError:
        raise UserError(f"There is no checkpoint {path}.") from None
    except _DAMAGE as error:
        raise UserError(
            f"The checkpoint {path} is damaged ({error}). Delete it to go on from the one "
            "before, or choose another with --checkpoint."
        ) from error


def _assign(path: Path, arrays: Arrays, variables: dict[str, "keras.Variable"]) -> None:
    """Assigns all or none; UserError unless names and shapes are the same."""
    stored = {name: array.shape for name, array in arrays.items()}
    expected = {name: tuple(variable.shape) for name, variable in variables.items()}
    for name in sorted(stored.keys() | expected.keys()):
        if stored.get(name) != expected.get(name):
            raise UserError(
                f"The checkpoint {path} is of another model. Expected {name} of shape "
                f"{expected.get(name, 'nothing')}, received {stored.get(name, 'nothing')}."
            )
    for name, variable in variables.items():
        variable.assign(arrays[name])
