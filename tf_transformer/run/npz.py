"""Arrays in .npz files, checked by zip's checksums and by a list of the members."""

import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tf_transformer.errors import UserError
from tf_transformer.files import replacing

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
    """Reads the arrays whose names begin with `prefix`, by the rest of their names."""
    arrays = read_arrays(path, prefix)
    return {name.removeprefix(prefix): array for name, array in arrays.items()}


def require_shapes(path: Path, arrays: Arrays, expected: Mapping[str, tuple[int, ...]]) -> None:
    """Raises UserError unless names and shapes are as `expected`."""
    received = {name: array.shape for name, array in arrays.items()}
    for name in sorted(received.keys() | expected.keys()):
        if received.get(name) != expected.get(name):
            raise UserError(
                f"The checkpoint {path} is of another model. Expected {name} of shape "
                f"{expected.get(name, '(none)')}. Received: {received.get(name, '(none)')}."
            )


def require_numbers(path: Path, arrays: Arrays) -> None:
    """Raises UserError unless all arrays hold finite numbers, and those of weights floats."""
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
