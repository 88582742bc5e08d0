"""A run or an export exists or does not: what is refused, fails or is killed leaves no half.

Such a folder cannot be loaded, and the same command, corrected or not, then does its work as if
nothing had happened. Fails when `train` refuses the folder of a run that never began to train,
and when `export` writes into the folder it publishes.
"""

import resource
import time

import numpy as np
import pytest

import tf_transformer


def assert_no_run(folder):
    with pytest.raises(Exception, match=str(folder)):
        tf_transformer.load(folder)


def kill_when(process, condition):
    """Kills a process, as `kill -9` or a power failure would, once the condition holds."""
    end = time.monotonic() + 300
    while not condition():
        assert process.poll() is None and time.monotonic() < end, process.communicate()
        time.sleep(0.001)
    process.kill()


def test_a_refused_training_leaves_no_run(text, tmp_path):
    files = {"train": text / "train", "valid": text / "dev", "source": "en", "target": "de"}
    sizes = {"num_layers": 1, "d_model": 16, "d_ff": 16, "num_heads": 2, "vocab_size": 320}
    options = {**files, **sizes, "steps": 2, "batch_tokens": 512, "output": tmp_path / "run"}
    for wrong in ({"valid": tmp_path / "nowhere"}, {"vocab_size": 30_000}):
        with pytest.raises(Exception, match="nowhere|vocab_size"):
            tf_transformer.train(**options | wrong)
        assert_no_run(tmp_path / "run")
    tf_transformer.train(**options).translate("one two")
    tf_transformer.load(tmp_path / "run").translate("one two")


def test_a_training_killed_early_leaves_no_run_and_begins_again(start, run, trained, tmp_path):
    """It ends with the weights of the same training without interruption, bit for bit."""
    folder = tmp_path / "run"
    command = ["train.py", "--config", trained / "config.json", "--output", folder]
    for file in ("config.json", "data"):
        with start(*command) as process:
            kill_when(process, (folder / file).exists)
        assert_no_run(folder)
    run(*command)
    found, expected = (np.load(path / "checkpoints" / "best.npz") for path in (folder, trained))
    for name in expected.files:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize("failure", ["a full disk", "kill -9"])
def test_a_failed_export_leaves_no_version(failure, start, trained, tmp_path):
    with start("export.py", trained, "--output", tmp_path / "exported") as process:
        if failure == "a full disk":  # for it, no file can grow beyond 50 kB
            resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (50_000, 50_000))
        else:
            kill_when(process, lambda: list(tmp_path.glob("exported/*/*")))
        process.communicate()
    assert process.returncode
    assert not list(tmp_path.glob("exported/[!.]*"))
