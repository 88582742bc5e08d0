"""Version folders of a model, numbered as in TF Serving."""

import fcntl
import os
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import is_abandoned, new_folder

LITE_MODEL = "model.tflite"  # instead of a SavedModel


def version_folders(base: Path) -> dict[int, Path]:
    """Returns the entries of `base` named by a number; none if `base` is not a folder."""
    entries = base.iterdir() if base.is_dir() else ()
    return {int(entry.name): entry for entry in entries if is_version(entry.name)}


def is_version(name: str) -> bool:
    """Returns whether a name is a number written with the digits 0 to 9."""
    return name.isascii() and name.isdecimal()


def find_export(path: Path) -> Path | None:
    """Returns the folder of an export: `path` or its newest version; None for a run.

    Raises UserError if `path` is the folder of several models.
    """
    if (path / "saved_model.pb").exists() or is_lite(path):
        return path
    folders = {n: folder for n, folder in version_folders(path).items() if folder.is_dir()}
    if folders:
        return folders[max(folders)]
    is_plain = path.is_dir() and not (path / "config.json").exists()
    models = sorted(path.iterdir()) if is_plain else ()
    if example := next(filter(version_folders, models), None):
        raise UserError(
            f"{path} is neither a run directory nor an export. Give an export in it, such as "
            f"{example}."
        )
    return None


def is_lite(path: Path) -> bool:
    """Tells whether the folder of an export is for LiteRT; otherwise it is a SavedModel."""
    return (path / LITE_MODEL).exists()


def check_readable(path: Path) -> None:
    """Raises UserError for a path that TensorFlow cannot load a model from.

    TensorFlow takes the path of the weights as a pattern, in which [1] matches 1 and a
    backslash matches nothing. "*" and "?" are safe, since they match themselves.
    """
    if re.search(r"\[.*\]|\\", str(path)):
        raise UserError(
            "A model's path must not contain [...] or a backslash: TensorFlow reads it as a "
            f"pattern and finds no weights there. Received: {path}. Choose another folder."
        )


@contextmanager
def new_version(base: Path, version: int | None = None) -> Iterator[tuple[Path, Path]]:
    """Yields BASE/VERSION and a temporary folder, which is renamed to it when the block ends.

    Until then no other export gets this number, by default the next free one. `base` is created
    if missing. Raises UserError if the version exists, another export writes it, or the folder
    cannot be written.
    """
    if version is not None and version < 1:
        raise UserError(f"`version` must be at least 1. Received: {version}.")
    with ExitStack() as stack:
        with _one_at_a_time(base):
            being_written = _being_written(base)
            number = version or max([*version_folders(base), *being_written], default=0) + 1
            final = base / str(number)
            if final.exists() or number in being_written:
                taken = (
                    "exists already" if final.exists() else "is being written by another export"
                )
                raise UserError(f"{final} {taken}. Choose another `version`, or leave it out.")
            # The temporary name is not a number, so TF Serving ignores the folder.
            folder = stack.enter_context(new_folder(final))
        yield final, folder


@contextmanager
def _one_at_a_time(base: Path) -> Iterator[None]:
    """Creates the folder if it is missing, and waits until no other export is in the block."""
    with ExitStack() as stack:
        with suppress(OSError):  # of a file system without locks; writing reports the others
            base.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(base, os.O_RDONLY)
            stack.callback(os.close, descriptor)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield


def _being_written(base: Path) -> set[int]:
    """Returns the numbers of the temporary folders that exports are writing."""
    folders = {folder: folder.name.split(".")[1] for folder in base.glob(".*.tmp")}
    return {
        int(number)
        for folder, number in folders.items()
        if is_version(number) and not is_abandoned(folder)
    }
