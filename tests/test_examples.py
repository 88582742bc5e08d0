"""Every example is short, runs, and learns what it claims."""

import runpy
from pathlib import Path

import pytest

EXAMPLES = sorted((Path(__file__).parents[1] / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_learns_what_it_asserts(path, capsys):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 40 and lines[-1].startswith("assert ")
    runpy.run_path(str(path))
    assert capsys.readouterr().out
