"""Weight files: .npz archives with checksums, LoRA adapters and dev scores."""

import re
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tf_transformer.errors import UserError
from tf_transformer.files import replacing
from tf_transformer.run.records import Record

Arrays = dict[str, np.ndarray]

# Holds the names of all other arrays: zip's directory has no checksum, so damage to it may hide
# an array.
_MEMBERS = "members"

# Errors of zipfile and NumPy when bytes of an archive are missing or changed.
_DAMAGE = (
    OSError,
    EOFError,
    ValueError,
    RuntimeError,
    TypeError,
    AttributeError,
    MemoryError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
)

# The name of a kernel's adapter.
_ADAPTER = re.compile(r"^(.*/)lora_(kernel)_[ab]$")

# Entries of best.npz and of averages beside the weights.
_DEV_SET = "dev_set"
_BEST, _RECORD = "best/", "record/"


def is_valid(path: Path) -> bool:
    """Returns whether every written member is there and matches its checksum."""
    try:
        with zipfile.ZipFile(path) as archive:
            if archive.testzip() is not None:
                return False
            names = {name.removesuffix(".npy") for name in archive.namelist()}
        with np.load(path) as archive:
            return names == {*archive[_MEMBERS].tolist(), _MEMBERS}
    except (*_DAMAGE, KeyError):
        return False


def write_arrays(path: Path, arrays: Arrays) -> None:
    """Writes a .npz with the names of its arrays; it appears whole or not at all."""
    with replacing(path) as temporary, open(temporary, "wb") as file:
        # For mypy, an array may have the name of a parameter.
        np.savez(file, **arrays, **{_MEMBERS: np.array(list(arrays))})  # type: ignore[arg-type]


def read_arrays(path: Path, prefix: str = "") -> Arrays:
    """Reads the arrays whose names begin with `prefix`.

    Raises:
        UserError: if there is no such file, or it is damaged.
    """
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
    except _DAMAGE as error:
        raise UserError(
            f"The checkpoint {path} is damaged ({error}). Delete it to resume from the "
            "previous one, or choose another with --checkpoint."
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
        if array.dtype.kind not in kinds:
            raise UserError(
                f"The checkpoint {path} must hold numbers. Received: {name} of type "
                f"{array.dtype}. Choose another with --checkpoint."
            )
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            raise UserError(
                f"The checkpoint {path} must hold finite numbers. Received: NaN or infinity in "
                f"{name}. Choose another with --checkpoint."
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


def without_effect(adapters: Arrays) -> Arrays:
    """Returns adapters with B set to 0, so that A B is 0."""
    return {
        name: np.zeros_like(value) if name.endswith("_b") else value
        for name, value in adapters.items()
    }


def add_record(path: Path, record: Record) -> None:
    """Adds the evaluation of averaged weights to their file; a step's is in the history."""
    values = {f"{_RECORD}{name}": np.array(value) for name, value in record.items()}
    write_arrays(path, read_arrays(path, prefix="model/") | values)


def read_record(path: Path) -> Record | None:
    """Reads the evaluation in a file of weights; None if it has none or is damaged."""
    if not is_valid(path):
        return None
    return {name: value.item() for name, value in read_named(path, _RECORD).items()} or None


def save_best(source: Path, best: Path, scores: dict[str, float], dev_set: str) -> None:
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
