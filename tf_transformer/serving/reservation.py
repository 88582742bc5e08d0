"""A version number that belongs to one export until it is published or given up."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tf_transformer.errors import UserError
from tf_transformer.serving.versions import versions


@contextmanager
def reserved(base: Path, version: int | None = None) -> Iterator[Path]:
    """Yields BASE/VERSION, which no other export writes until the block ends.

    A lock on a hidden file beside it says so; the system frees it however the process ends.

    Args:
        base: the model's folder; made if need be.
        version: its number; the next free one by default.

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
        raise UserError(f"{final} {taken}. Choose another --version, or none.")
    try:
        yield final
    finally:
        with suppress(OSError):
            _lock_file(base, number).unlink()
        os.close(lock)


def _lock_file(base: Path, number: int) -> Path:
    return base / f".{number}.lock"


def _lock(base: Path, number: int) -> int | None:
    """A descriptor of the lock of a number; None if the number is taken."""
    final, file = base / str(number), _lock_file(base, number)
    if final.exists():
        return None
    try:
        base.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o666)
    except OSError as error:
        raise UserError(f"Cannot write {final}: {error.strerror or error}.") from error
    if _holds(descriptor) and _is_file(descriptor, file) and not final.exists():
        return descriptor
    os.close(descriptor)
    return None


def _holds(descriptor: int) -> bool:
    """Whether this process has the lock now; also on a file system without locks."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return not isinstance(error, BlockingIOError)
    return True


def _is_file(descriptor: int, file: Path) -> bool:
    """Whether the file that was opened is still there: its owner removes it when done."""
    try:
        return os.path.samestat(os.fstat(descriptor), file.stat())
    except FileNotFoundError:
        return False
