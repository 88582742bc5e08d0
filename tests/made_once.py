"""Read-only results of slow work, made by one test process for all of them."""

import fcntl
import os
import pickle
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

Made = TypeVar("Made")


def made_once(factory: pytest.TempPathFactory, name: str, make: Callable[[Path], Made]) -> Made:
    """Returns the result of `make(folder)` in the first process that asks for `name`.

    Another process waits for it and gets a copy of the object; the files are the same.
    """
    base = Path(os.environ.get("TF_TRANSFORMER_MADE_ONCE") or factory.getbasetemp())
    made = base / f"{name}.pickle"
    with (base / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=base))
            made.write_bytes(pickle.dumps(make(folder)))
        return pickle.loads(made.read_bytes())
