"""Checkpoints: .npz files of weights for decoding, and of states to resume training from.

Weights are stored under their Keras paths ("model/..."), with the scores of their evaluation. A
state keeps LoRA adapters unmerged, and adds the optimizer's variables ("optimizer/..."), the
dropout seeds ("seed/..."), which no Keras writer saves, and the trainer's progress
("progress/..."). Zip's checksums reveal damaged files.
"""

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.base.files import replacing

if TYPE_CHECKING:  # commands check a run directory before they import TensorFlow
    import keras

logger = logging.getLogger(__name__)

Arrays = dict[str, np.ndarray]

# Holds the names of all other arrays: zip's directory has no checksum, so damage to it may hide
# an array.
_MEMBERS = "members"

_STATES_KEPT = 2

# The name of a kernel's adapter.
_ADAPTER = re.compile(r"^(.*/)lora_(kernel)_[ab]$")

SCORE = "score/"  # begins the names of a step's scores, beside its weights


def is_valid(path: Path) -> bool:
    """Returns whether every written member is there and matches its checksum."""
    return read_if_valid(path) is not None


def read_if_valid(path: Path, *prefixes: str) -> Arrays | None:
    """Reads the arrays whose names begin with one of `prefixes`; None unless `is_valid`."""
    try:
        with np.load(path) as archive:
            names = archive.files  # in the order in which they were written
            if archive.zip.testzip() or {*names} != {*archive[_MEMBERS].tolist(), _MEMBERS}:
                return None
            return {name: archive[name] for name in names if name.startswith(prefixes)}
    except Exception:  # whatever zipfile and NumPy raise about missing or changed bytes
        return None


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Writes a .npz with the names of its arrays; it appears whole or not at all."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        # For mypy, an array may have the name of a parameter.
        np.savez(file, **arrays, **{_MEMBERS: np.array(list(arrays))})  # type: ignore[arg-type]


def read_arrays(path: Path, prefix: str | tuple[str, ...] = "") -> Arrays:
    """Reads arrays whose names begin with `prefix`; UserError if missing or damaged."""
    try:
        with np.load(path) as archive:
            names = [name for name in archive.files if name != _MEMBERS]
            arrays = {name: archive[name] for name in names if name.startswith(prefix)}
        for name, array in arrays.items():
            if not isinstance(array, np.ndarray):  # a member that is no .npy is read as bytes
                raise ValueError(f"{name} is not an array")
        return arrays
    except FileNotFoundError:
        raise UserError(f"There is no checkpoint {path}.") from None
    except Exception as error:
        raise UserError(
            f"The checkpoint {path} is damaged ({error}). Delete it to resume from the "
            "previous one, or choose another `checkpoint`."
        ) from error


def read_named(path: Path, prefix: str) -> Arrays:
    """Reads the arrays whose names begin with `prefix`, and removes it from the names."""
    arrays = read_arrays(path, prefix)
    return {name.removeprefix(prefix): array for name, array in arrays.items()}


def require_shapes(path: Path, arrays: Arrays, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raises UserError unless names and shapes are as `expected`."""
    received = {name: array.shape for name, array in arrays.items()}
    for name in sorted(received.keys() | expected.keys()):
        if received.get(name) != expected.get(name):
            raise UserError(
                f"The checkpoint {path} belongs to another model. Expected {name} of shape "
                f"{expected.get(name, '(none)')}. Received: {received.get(name, '(none)')}."
            )


def require_numbers(path: Path, arrays: Arrays) -> None:
    """Raises UserError unless all arrays hold finite numbers, and weights are floats."""
    for name, array in arrays.items():
        kinds = "f" if name.startswith("model/") else "fiub"
        if array.dtype.kind not in kinds or not np.isfinite(array).all():
            raise UserError(
                f"The checkpoint {path} must hold finite numbers. Received: {name} of type "
                f"{array.dtype} with others. Choose another `checkpoint`."
            )


def kernel_of(name: str) -> str | None:
    """Returns the name of the kernel that an adapter changes; None if `name` is no adapter."""
    match = _ADAPTER.match(name)
    return "".join(match.groups()) if match else None


def merged(weights: Arrays) -> Arrays:
    """Returns weights without adapters, each kernel W replaced by W + A B.

    A B has the scale 1, because training sets lora_alpha to the rank.
    """
    merged = {name: value for name, value in weights.items() if kernel_of(name) is None}
    for name, a in weights.items():
        if (kernel := kernel_of(name)) and name.endswith("_a"):
            merged[kernel] = merged[kernel] + a @ weights[f"{name[:-1]}b"]
    return merged


def save_weights(path: Path, model: "keras.Model", **scores: float) -> None:
    """Writes weights, adapters merged, and their scores; `path` appears whole or not at all."""
    marks: Arrays = {f"{SCORE}{name}": np.array(score) for name, score in scores.items()}
    write_arrays(path, merged(_values(_model_variables(model))) | marks)


def save_state(path: Path, model: "keras.Model", progress: Arrays) -> None:
    """Writes everything that a compiled model needs to resume training exactly, and `progress`.

    Raises UserError if a weight is not finite.
    """
    weights = _values(_model_variables(model))
    for name, value in weights.items():
        if not np.isfinite(value).all():
            raise UserError(
                f"{name} is not finite. {steadier(model, CheckpointFolder(path.parent))}"
            )
    named = {f"progress/{name}": value for name, value in progress.items()}
    write_arrays(path, weights | _values(_training_variables(model)) | named)


def steadier(model: "keras.Model", folder: "CheckpointFolder") -> str:
    """Advises what to change once a loss or weight is not finite, for a message."""
    optimizer = getattr(model.optimizer, "inner_optimizer", model.optimizer)
    ways = ["a smaller training.learning_rate_scale", "a longer training.warmup_steps"]
    if not optimizer.global_clipnorm or optimizer.global_clipnorm > 1:
        ways.append("training.clip_norm=1")
    go_on = "There is no state yet: begin again"
    if folder.state_steps():
        go_on = "The last state is intact: resume from it"
    return f"{go_on} with {' or '.join(ways)}."


def describe_sizes(model: "keras.Model", keep: int) -> str:
    """Describes the disk space of the files that `rotate(keep)` leaves."""
    weights, training = (
        sum(4 * math.prod(variable.shape) for variable in variables.values()) / 1e6
        for variables in (_model_variables(model), _training_variables(model))
    )
    return (
        f"{weights + training:,.1f} MB for each of {_STATES_KEPT} states to resume from, and "
        f"{weights:,.1f} MB for each of at most {keep + 2} files of weights"  # best and average
    )


def restore_state(path: Path, model: "keras.Model") -> Arrays:
    """Restores a state into a compiled model; returns the `progress` that was saved."""
    if not model.optimizer.built:  # building it again would replace the loss scale's state
        model.optimizer.build(model.trainable_variables)
    state, progress = read_arrays(path), read_progress(path)
    for name in progress:
        del state[f"progress/{name}"]
    _assign(path, state, _model_variables(model) | _training_variables(model))
    return progress


def read_progress(path: Path) -> Arrays:
    """Reads the `progress` of a state."""
    return read_named(path, "progress/")


def load_weights(path: Path, model: "keras.Model") -> None:
    """Loads only the weights, adapters merged, for decoding; disables the model's adapters."""
    variables = _model_variables(model)
    adapters = {name: variable for name, variable in variables.items() if kernel_of(name)}
    no_effect = {  # A B is 0 if B is
        name: np.zeros_like(value) if name.endswith("_b") else value
        for name, value in _values(adapters).items()
    }
    _assign(path, merged(read_arrays(path, prefix="model/")) | no_effect, variables)


# Takes the path, the stored and the current value of a weight; returns the new value, or None
# for the stored one.
Conversion = Callable[[str, np.ndarray, np.ndarray], np.ndarray | None]


def load_some(path: Path, model: "keras.Model", convert: Conversion | None = None) -> list[str]:
    """Loads whichever weights of a model a checkpoint, perhaps of another model, contains.

    The embedding of a model that has only one may be stored as a source embedding. Stored
    values are converted by `convert`, if given. Returns the paths of the weights that the
    checkpoint lacks; they are left unchanged. Raises UserError if a stored weight has another
    shape, or is not finite.
    """
    stored = read_named(path, "model/")
    stored |= {
        name.removeprefix("source_"): value
        for name, value in stored.items()
        if name.startswith("source_embedding/")
    }
    weights = {weight.path: weight for weight in model.weights}
    taken = {}
    for name, weight in weights.items():
        if name in stored:
            converted = convert and convert(name, stored[name], weight.numpy())
            taken[name] = stored[name] if converted is None else converted
    require_shapes(path, taken, {name: tuple(weights[name].shape) for name in taken})
    require_numbers(path, {f"model/{name}": value for name, value in taken.items()})
    for name, value in taken.items():
        weights[name].assign(value)
    return [name for name in weights if name not in taken]


def average_checkpoints(paths: Sequence[Path], output: Path) -> list[Path]:
    """Writes the mean of the model weights of several checkpoints (paper 6.1), in float32.

    Damaged checkpoints are left out with a warning; returns the others. Raises UserError if all
    are damaged, or they do not belong to the same model.
    """
    good = [path for path in paths if is_valid(path)]
    for path in paths:
        if path not in good:
            logger.warning("%s is damaged: left out of the average", path)
    if not good:
        raise UserError(f"There is no intact checkpoint among the {len(paths)} to average.")
    totals: Arrays = {}
    for path in good:
        arrays = read_arrays(path, prefix="model/")
        require_numbers(path, arrays)
        require_shapes(path, arrays, {name: v.shape for name, v in (totals or arrays).items()})
        for name, value in arrays.items():
            totals[name] = totals.get(name, 0) + value.astype(np.float64) / len(good)
    write_arrays(output, {name: value.astype(np.float32) for name, value in totals.items()})
    return good


class CheckpointFolder:
    """The checkpoints of one run.

    Weights are in step-00001500.npz and so on, best.npz and average.npz, and those of another
    run, with which training began, in start.npz. The two newest states are kept, as
    state-00001500.npz; training resumes from the newest valid one.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.best = path / "best.npz"
        self.average = path / "average.npz"

    def step_path(self, step: int) -> Path:
        """Returns the file of a step's weights; 0 for those that training began with."""
        return self.path / (f"step-{step:08d}.npz" if step else "start.npz")

    def find(self, which: str) -> Path:
        """Returns the file of "best", "average", "last" or a step; UserError if missing."""
        steps = self.steps()
        paths = {"best": self.best, "average": self.average}
        paths |= {str(step): self.step_path(step) for step in steps}
        if steps:
            paths["last"] = self.step_path(steps[-1])
        elif self.state_steps():  # before the first evaluation
            paths["last"] = self.state_path(self.resume_step())
        present = [name for name, path in paths.items() if path.exists()]
        if which not in present:
            known = f"There are: {', '.join(present)}" if present else "There is none yet"
            if present == ["last"]:
                known += ", until training.evaluate_every steps are done"
            raise UserError(f"{self.path} has no checkpoint {quoted(which)}. {known}.")
        return paths[which]

    def steps(self) -> list[int]:
        """Lists the steps with weights, in order."""
        return self._steps_of("step")

    def last(self, count: int) -> list[Path]:
        """Returns the newest `count` checkpoints, oldest first."""
        return [self.step_path(step) for step in self.steps()[-count:]]

    def rotate(self, keep: int) -> None:
        """Deletes all but the newest `keep` files of weights and the newest states."""
        for step in self.steps()[:-keep]:
            self.step_path(step).unlink()
        for step in self.state_steps()[:-_STATES_KEPT]:
            self.state_path(step).unlink()

    def clear(self, latest: Path | None) -> None:
        """Deletes half-written files, and damaged states newer than `latest`."""
        for path in (*self.path.glob(".*.npz.*.tmp"), *self.path.glob("state-*.npz")):
            if path.suffix == ".tmp" or (latest and path.name > latest.name):
                path.unlink()

    def state_path(self, step: int) -> Path:
        """Returns the file of a step's state."""
        return self.path / f"state-{step:08d}.npz"

    def resume_step(self) -> int:
        """Returns the step of the newest valid state; 0 without a state."""
        steps = self.state_steps()[::-1]
        valid = (step for step in steps if is_valid(self.state_path(step)))
        return next(valid, steps[0] if steps else 0)

    def require_state_beside_best(self) -> None:
        """Raises UserError if training would start over and replace the best weights."""
        if self.best.exists() and not self.state_steps():
            raise UserError(
                f"{self.best} exists, but there is no state-*.npz to resume from: training "
                "would start over and replace it. Give another `output`."
            )

    def state_steps(self) -> list[int]:
        """Lists the steps with a state, in order."""
        return self._steps_of("state")

    def latest_state(self) -> Path | None:
        """Returns the newest valid state; None without any, UserError if all are damaged."""
        steps = self.state_steps()
        for step in reversed(steps):
            if is_valid(self.state_path(step)):
                return self.state_path(step)
            logger.warning("checkpoint of step %s is damaged: not used", f"{step:,}")
        if steps:
            raise UserError(
                f"All {len(steps)} states in {self.path} are damaged. Delete them to train "
                "from the beginning, or give another `output`."
            )
        return None

    def _steps_of(self, kind: str) -> list[int]:
        names = (re.fullmatch(rf"{kind}-(\d+)\.npz", file.name) for file in self.path.glob("*"))
        return sorted(int(name[1]) for name in names if name)


def _model_variables(model: "keras.Model") -> dict[str, "keras.Variable"]:
    return {f"model/{v.path}": v for v in model.weights}  # frozen ones too


def _training_variables(model: "keras.Model") -> dict[str, "keras.Variable"]:
    variables = {f"optimizer/{v.path}": v for v in model.optimizer.variables}
    seeds = [v for v in model.non_trainable_variables if "seed_generator" in v.path]
    # Seed paths contain a counter of the process; only their order is stable.
    return variables | {f"seed/{i:04d}": seed for i, seed in enumerate(seeds)}


def _values(variables: dict[str, "keras.Variable"]) -> Arrays:
    return {name: variable.numpy() for name, variable in variables.items()}


def _assign(path: Path, arrays: Arrays, variables: dict[str, "keras.Variable"]) -> None:
    """Assigns all arrays, or none and raises UserError if names, shapes or types are wrong."""
    require_shapes(path, arrays, {name: tuple(v.shape) for name, v in variables.items()})
    require_numbers(path, arrays)
    for name, variable in variables.items():
        variable.assign(arrays[name])
