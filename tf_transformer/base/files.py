"""Atomic writing of files and folders, locks, JSON and hashes."""

import fcntl
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from tf_transformer.base.errors import UserError

logger = logging.getLogger(__name__)

LOCK_FILE = ".lock"


@contextmanager
def replacing(path: Path, *, if_changed: bool = False) -> Iterator[Path]:
    """Yields a temporary path beside `path`, which replaces it when the block succeeds.

    With `if_changed` a file of the same content is left alone. Raises UserError if the disk is
    full or the folder cannot be written; `path` is untouched.
    """
    temporary = _beside(path)
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            # Run by root, renaming would replace a device such as /dev/null for all users.
            raise UserError(f"Cannot write {path}: it is a device. Give the path of a file.")
        path.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        if if_changed and path.is_file() and sha256(path) == sha256(temporary):
            return
        sync(temporary)
        os.replace(temporary, path)
        sync(path.parent)
    except OSError as error:
        reason = error.strerror or error
        raise UserError(
            f"Cannot write {path}: {reason}. Any earlier version is untouched; free some space "
            "or choose another folder, then run the same command again."
        ) from error
    finally:
        with suppress(OSError):
            temporary.unlink()


def _beside(path: Path) -> Path:
    """Returns a hidden path in the same folder, unique to this process."""
    return path.parent / f".{path.name}.{os.getpid()}.tmp"


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Creates the folder if it is missing, and locks it for this process.

    The system releases the lock however the process ends. An empty file `.lock` stays, as
    removing it would let two processes lock files of the same name; a folder itself cannot be
    locked on network storage. Raises UserError if another process holds the lock, or the folder
    cannot be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = _open_lock(folder / LOCK_FILE)
    except FileExistsError:
        raise UserError(f"{folder} is not a run directory. Give another `output`.") from None
    except OSError as error:
        raise UserError(
            f"Cannot write {folder}: {error.strerror or error}. Give another folder."
        ) from error
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UserError(
                f"{folder} is in use by another process. Wait for it to end, or give another "
                "`output`."
            ) from None
        except OSError as error:
            logger.warning(
                "warning  nothing prevents two processes from working in %s at once: its file "
                "system has no locks (%s)", folder, error.strerror,
            )  # fmt: skip
        yield


def _open_lock(path: Path) -> IO:
    try:
        return path.open("w")
    except PermissionError:
        if not path.exists():
            raise
        return path.open()  # another user's, in a folder that a group shares


@contextmanager
def new_folder(path: Path, replaces: bool = False) -> Iterator[Path]:
    """Yields a new folder beside `path`, which gets that name when the block succeeds.

    Missing parents are created. An existing folder is deleted at the end if the new one
    `replaces` it, else it is a UserError at once. So is later a full disk, or a folder that
    cannot be written.
    """
    if path.exists() and not replaces:
        raise UserError(f"{path} exists already. Choose another folder.")
    try:
        for leftover in path.parent.glob(f".{path.name}.*.tmp"):
            if is_abandoned(leftover):
                shutil.rmtree(leftover)
        with _temporary_folder(_beside(path)) as temporary:
            yield temporary
            for part in [*temporary.rglob("*"), temporary]:
                sync(part)
            if replaces:
                shutil.rmtree(path, ignore_errors=True)
            os.rename(temporary, path)
            sync(path.parent)
    except OSError as error:
        raise UserError(f"Cannot write {path}: {error.strerror or error}.") from error


@contextmanager
def _temporary_folder(temporary: Path) -> Iterator[Path]:
    """Yields a new folder, deleted at the end and locked while it is in use."""
    temporary.mkdir(parents=True)
    descriptor = os.open(temporary, os.O_RDONLY)
    try:
        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield temporary
    finally:
        os.close(descriptor)
        shutil.rmtree(temporary, ignore_errors=True)


def is_abandoned(folder: Path) -> bool:
    """Tells whether the process that wrote the folder has ended; False without locks."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except FileNotFoundError:  # renamed or deleted by its process just now
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    return True


def write_text(path: Path, text: str) -> None:
    """Writes a UTF-8 file atomically: on failure, an existing file keeps its content."""
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


def sync(path: Path) -> None:
    """Waits until a file's content, or a folder's list of files, is on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def cache_folder() -> Path:
    """Returns this package's folder for files that can be recreated, in the user's caches."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache", "tf_transformer")


def sha256(path: Path) -> str:
    """Returns the SHA-256 of a file's content, in hexadecimal."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def watched(*files: Path) -> Callable[[], None]:
    """Returns a function that raises UserError if a file of a model has been replaced."""

    def states() -> list[tuple[int, int, int]]:
        return [(it.st_ino, it.st_mtime_ns, it.st_size) for it in map(Path.stat, files)]

    before = states()

    def check() -> None:
        for path, then, now in zip(files, before, states(), strict=True):
            if now != then:
                raise UserError(
                    f"{path} has been replaced since the model was loaded. Load it again."
                )

    return check


def parse_json(text: str | bytes, **options: Any) -> Any:
    """Parses JSON as `json.loads` does; ValueError also for text that is nested too deeply."""
    try:
        return json.loads(text, **options)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
