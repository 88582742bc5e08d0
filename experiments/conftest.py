"""The fixtures that experiments share with the tests of the package."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from command_line import tree
from conftest import (  # of tests/
    bounded_memory,
    empty_folder,
    logging_as_imported,
    pytest_collection_modifyitems,
    trained_run,
    young_heap,
)

from experiments.common import run

__all__ = [
    "bounded_memory", "empty_folder", "logging_as_imported", "pytest_collection_modifyitems",
    "trained_run", "young_heap",
]  # fmt: skip


@pytest.fixture
def texts(trained_run, tmp_path) -> Path:
    """The current folder, with a dev set, a test set of short and long sentences, bad texts."""
    for language in ("en", "de"):
        lines = trained_run.lines(f"dev.{language}")[:16]
        tests = [*lines, " ".join(lines[:8]), " ".join(lines[8:])]
        parts = {
            "dev": lines[:8],
            "test": tests,
            "empty": [],
            "blank": [""],
            "short": lines[:7],
        }
        for name, part in parts.items():
            text = "".join(f"{line}\n" for line in part)
            (tmp_path / f"{name}.{language}").write_text(text, "utf-8")
    (tmp_path / "run").symlink_to(trained_run.path)
    return tmp_path


@pytest.fixture
def refused(capsys) -> Callable[..., str]:
    """Runs a command that must be refused in one line; returns it. No file may change."""

    def refuse(command: Callable, words: list[str]) -> str:
        before = tree(Path())
        try:
            status = run(command, words)
        except SystemExit as end:
            status = end.code
        error = capsys.readouterr().err
        assert status in (1, 2) and re.fullmatch(r"error: [^\n]+\n", error), error
        assert tree(Path()) == before
        return error

    return refuse
