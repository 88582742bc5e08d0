"""Version folders of a model: numbered as in TF Serving, and reserved by the export writing."""

import fcntl
import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tf_transformer.config import Config
from tf_transformer.errors import UserError

LITE_MODEL = "model.tflite"  # instead of a SavedModel
CARD = Path("assets.extra", "model_card.json")  # in a version's folder


def versions(base: Path) -> dict[int, Path]:
    """Returns the entries of `base` named by a number; none if `base` is not a folder."""
    entries = base.iterdir() if base.is_dir() else ()
    return {int(entry.name): entry for entry in entries if is_version(entry.name)}


def is_version(name: str) -> bool:
    """Returns whether a name is a number written with the digits 0 to 9."""
    return name.isascii() and name.isdecimal()


def find_export(path: Path) -> Path | None:
    """Returns the folder of a SavedModel: `path` or its newest version; None for a run.

    Raises:
        UserError: if `path` is the folder of several models, or an export for LiteRT.
    """
    if (path / "saved_model.pb").exists():
        return path
    folders = {number: folder for number, folder in versions(path).items() if folder.is_dir()}
    lite = [folder for folder in (path, *folders.values()) if (folder / LITE_MODEL).exists()]
    folders = {number: folder for number, folder in folders.items() if folder not in lite}
    if folders:
        return folders[max(folders)]
    if lite:
        raise UserError(f"{path} must be a SavedModel. Received: an export for LiteRT.")
    is_plain = path.is_dir() and not (path / "config.json").exists()
    models = sorted(path.iterdir()) if is_plain else ()
    if example := next(filter(versions, models), None):
        raise UserError(
            f"{path} is neither a run directory nor an export. Give an export in it, such as "
            f"{example}."
        )
    return None


def read_card(path: Path) -> dict[str, Any]:
    """Returns the model card of an export; {} if it is missing or cannot be read."""
    try:
        card = json.loads((path / CARD).read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return card if isinstance(card, dict) else {}


def read_config(path: Path) -> Config | None:
    """Returns the configuration in the card of an export; None without a readable one."""
    card = read_card(path)
    try:
        config = Config.from_json(json.dumps(card["config"]))
        return config.replace({f"decoding.{k}": v for k, v in card["decoding"].items()})
    except (KeyError, AttributeError, UserError):  # no card
        return None


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
def reserved(base: Path, version: int | None = None) -> Iterator[Path]:
    """Yields BASE/VERSION, which no other export can write until the block ends.

    The reservation is a lock on a hidden file beside it, which the system releases however the
    process ends.

    Args:
        base: the model's folder, created if missing.
        version: version number; the next free one by default.

    Raises:
        UserError: if the version exists, another export writes it, or the folder cannot be
            written.
    """
    if version is not None and version < 1:
        raise UserError(f"--version must be at least 1. Received: {version}.")
    number = version or max(versions(base), default=0) + 1
    while (lock := _lock(base, number)) is None and version is None:
        number += 1
    final = base / str(number)
    if lock is None:
        taken = "exists already" if final.exists() else "is being written by another export"
        raise UserError(f"{final} {taken}. Choose another --version, or leave it out.")
    try:
        yield final
    finally:
        with suppress(OSError):
            _lock_file(base, number).unlink()
        os.close(lock)


def _lock_file(base: Path, number: int) -> Path:
    return base / f".{number}.lock"


def _lock(base: Path, number: int) -> int | None:
    """Locks a version number; returns a file descriptor, or None if the number is taken."""
    final, file = base / str(number), _lock_file(base, number)
    if final.exists():
        return None
    try:
        base.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(f"Cannot write {final}: {error.strerror or error}.") from error
    if _try_lock(descriptor) and _is_file(descriptor, file) and not final.exists():
        return descriptor
    os.close(descriptor)
    return None


def _try_lock(descriptor: int) -> bool:
    """Locks a file; returns False if it is locked, but True on a file system without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def _is_file(descriptor: int, file: Path) -> bool:
    """Returns whether the open file still exists: its owner removes it when done."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False
