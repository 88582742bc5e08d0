"""The Python snippets of the README and of the decoding guide run as printed."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf
from snippets import snippets


@pytest.mark.parametrize("page", ["README.md", "docs/guides/decoding.md"])
def test_a_trained_run_is_used_as_printed(page, trained_run, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("runs").mkdir()
    Path("runs/mine").symlink_to(trained_run.path)
    names: dict = {}
    exec(snippets(page)[0], names)
    best = names["translator"].translate("Good morning.")
    assert capsys.readouterr().out.startswith(str(best))


def test_notebook_snippet_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    _, snippet = snippets("README.md")
    # Full size would take too long, so the numbers in the text are made smaller.
    smaller = {"vocab_size=8000": "vocab_size=50", "num_layers=4": "num_layers=1"}
    for printed, number in {**smaller, "d_ff=1024": "d_ff=64"}.items():
        assert printed in snippet
        snippet = snippet.replace(printed, number)
    ids = np.array([[5, 6, 3, 0], [7, 8, 9, 3]], "int32")
    shifted = np.array([[2, 5, 6, 0], [2, 7, 8, 9]], "int32")
    pairs = ({"source": ids, "target": shifted}, ids)
    names = {"dataset": tf.data.Dataset.from_tensors(pairs)}
    exec(snippet, names)
    np.save("expected.npy", names["model"](pairs[0]))
    imports, _, _ = snippet.partition("\nmodel =")
    assert_loads_in_a_new_process(imports)


def assert_loads_in_a_new_process(imports: str) -> None:
    """The saving process knows all classes; another must get them from the imports."""
    code = f"""
import keras, numpy as np
{imports}
model = keras.saving.load_model("model.keras")
ids = np.array([[5, 6, 3, 0], [7, 8, 9, 3]], "int32")
shifted = np.array([[2, 5, 6, 0], [2, 7, 8, 9]], "int32")
logits = model({{"source": ids, "target": shifted}})
np.testing.assert_array_equal(logits, np.load("expected.npy"))
assert model.optimizer.iterations == 1
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
