"""Every public class and function has an example in its docstring, and it runs."""

import doctest
import inspect
import io
from pathlib import Path

import keras
import numpy as np
import pytest

import tf_transformer
from tf_transformer import layers

PUBLIC = {
    name: getattr(module, name)
    for module in (tf_transformer, layers)
    for name in dir(module)
    if name in module.__all__
}
NAMES = PUBLIC | {"keras": keras, "np": np, "tf_transformer": tf_transformer}
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@pytest.fixture
def runs(trained_run) -> None:
    """The run that examples speak of: runs/mine."""
    Path("runs").mkdir()
    Path("runs/mine").symlink_to(trained_run.path)


@pytest.mark.parametrize("name", PUBLIC)
def test_its_example_runs(name, request):
    text = inspect.getdoc(PUBLIC[name])
    if "runs/" in text:
        request.getfixturevalue("runs")
    example = doctest.DocTestParser().get_doctest(text, dict(NAMES), name, None, None)
    output = io.StringIO()
    found = doctest.DocTestRunner(optionflags=FLAGS).run(example, out=output.write)
    assert found.attempted > 0, "no example"
    assert found.failed == 0, output.getvalue()
