"""The layers on Keras's JAX backend, in a process of its own."""

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from command_line import environment


# Not a dependency: TensorFlow imports JAX if installed, which delays every process by 0.5 s.
@pytest.mark.skipif(find_spec("jax") is None, reason="needs JAX")
def test_layers_compute_train_and_are_saved_on_jax(tmp_path):
    program = Path(__file__).with_name("on_jax.py")
    done = subprocess.run(
        [sys.executable, str(program), str(tmp_path)],
        capture_output=True,
        text=True,
        env=environment() | {"KERAS_BACKEND": "jax"},
    )
    assert done.stdout.endswith("done\n"), done.stderr
