"""README's notebook snippet runs as printed."""

import re
from pathlib import Path

import keras
import numpy as np
import tensorflow as tf

README = Path(__file__).parent.parent / "README.md"


def test_notebook_snippet_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (snippet,) = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
    # Full size would take longer than it tells: only the numbers in the text are made smaller.
    snippet = snippet.replace("vocab_size=8000", "vocab_size=50").replace(
        "d_ff=1024", "d_ff=64"
    )
    ids = np.array([[5, 6, 3, 0], [7, 8, 9, 3]], "int32")
    shifted = np.array([[2, 5, 6, 0], [2, 7, 8, 9]], "int32")
    pairs = ({"source": ids, "target": shifted}, ids)
    names = {"dataset": tf.data.Dataset.from_tensors(pairs)}
    exec(snippet, names)
    loaded = keras.saving.load_model("model.keras")
    np.testing.assert_array_equal(loaded(pairs[0]), names["model"](pairs[0]))
