"""Fixtures that several tests of run directories share."""

from collections import Counter
from pathlib import Path

import pytest


@pytest.fixture
def opened(monkeypatch) -> Counter:
    """Counts how often each file is opened, by its name."""
    counts, library = Counter(), open

    def counting(file, *arguments, **options):
        if not isinstance(file, int):
            counts[Path(file).name] += 1
        return library(file, *arguments, **options)

    for module in ("builtins", "io"):  # NumPy and zipfile take one each
        monkeypatch.setattr(f"{module}.open", counting)
    return counts
