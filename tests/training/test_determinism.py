"""`training.deterministic`: training works, and computes the same weights."""

import sys
from pathlib import Path

from command_line import run_command

PROGRAM = Path(__file__).with_name("deterministic_training.py")


def test_training_works_and_is_the_same_with_deterministic_operations(trained_run, tmp_path):
    """On one device and on two, in parts; a GPU's operations are not tested."""
    options = [*trained_run.options, "--output", str(tmp_path / "run")]
    options += ["--batch-tokens", "512", "--max-tokens-per-device", "256"]
    options += ["--set", f"data.tokenizer={trained_run.path / 'tokenizer.model'}"]
    options += ["--stop-after", "2 steps"]  # before any evaluation
    done = run_command([sys.executable, str(PROGRAM), *options])
    assert done.returncode == 0, done.stderr.decode()
    assert b"stopped at step 2 by --stop-after" in done.stdout + done.stderr
