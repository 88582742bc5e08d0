"""A run that is killed by `kill -9` and resumed ends with the bits of an undisturbed one.

Fails when a resumed run does not restore the dropout seeds that its state holds.
"""

import signal
import time
from pathlib import Path

import numpy as np

SETTINGS = (
    "model.dropout=0.1", "training.steps=40", "training.evaluate_every=20",
    "training.average_last=2", "training.save_minutes=1e-6",  # after every update
    "decoding.beam_size=1", "decoding.max_extra_length=1",
)  # fmt: skip


def saved(run: Path) -> set[Path]:
    """The weights and states that are whole; names of others begin with a dot."""
    return set(run.glob("checkpoints/[!.]*.npz"))  # other folders change meanwhile


def bits(run: Path) -> dict[str, bytes]:
    """Weights and Adam's moments in all files; scalars, which include times, are left out."""
    found = {}
    for file in saved(run):
        with np.load(file) as arrays:
            for name, array in arrays.items():
                if array.ndim and array.dtype.kind == "f":
                    found[f"{file.name}: {name}"] = array.tobytes()
    return found


def kill_after_a_save(process, run: Path) -> None:
    with process:
        while not saved(run):
            assert process.poll() is None, process.communicate()
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
    assert process.returncode == -signal.SIGKILL


def test_a_killed_run_resumes_bit_for_bit(start, run, corpus, tmp_path):
    options = [*corpus, *(word for setting in SETTINGS for word in ("--set", setting))]
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    run("train.py", *options, "--output", undisturbed)
    kill_after_a_save(start("train.py", *options, "--output", killed), killed)
    assert "resuming" in run("train.py", *options, "--output", killed)
    expected, resumed = bits(undisturbed), bits(killed)
    assert expected.keys() == resumed.keys()
    assert expected and not [name for name in expected if resumed[name] != expected[name]]
