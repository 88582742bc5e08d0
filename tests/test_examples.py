"""Every example runs, learns what it says, and is short; the snippets about layers run."""

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_learns_what_it_asserts(path, capsys):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert len(lines) < 40 and lines[-1].startswith("assert ")
    runpy.run_path(str(path))
    assert capsys.readouterr().out


def test_the_snippets_about_layers_run():
    text = (ROOT / "docs" / "guides" / "layers.md").read_text(encoding="utf-8")
    names: dict[str, object] = {}
    for snippet in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(snippet, names)
    assert names["model"].trainable_weights
