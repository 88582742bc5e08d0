"""The storm of signals: training survives, and failures are detected."""

import itertools
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from tools.storm.lab import PRINTS_STACKS, Lab, end_with_stacks
from tools.storm.stops import STEPS, differences, tries, what_is_wrong

STOPPED = "device: CPU\nstopped at step 7 by SIGTERM; run the same command again to resume\n"
FINISHED = "device: CPU\n\nThe run is in run. Next:\n"


@pytest.mark.parametrize(
    ("number", "status", "stdout", "stderr", "wrong"),
    [
        (signal.SIGTERM, 143, STOPPED, "", ""),
        (signal.SIGTERM, 0, FINISHED, "", ""),
        (signal.SIGTERM, -15, "", "", ""),
        (signal.SIGINT, 130, "", "interrupted\n", ""),
        (signal.SIGKILL, -9, "device: CPU\n", "", ""),
        (signal.SIGTERM, 0, STOPPED, "", "wrong status"),
        (signal.SIGTERM, -15, "device: CPU\n", "", "wrong status"),
        (signal.SIGTERM, 1, FINISHED, "", "wrong status"),
        (signal.SIGHUP, 129, STOPPED, "", "wrong last line"),
        (signal.SIGTERM, 143, STOPPED + "more\n", "", "wrong last line"),
        (signal.SIGTERM, 143, STOPPED, "Traceback (most recent call last)\n", "traceback"),
    ],
)
def test_a_wrong_end_is_detected(number, status, stdout, stderr, wrong):
    assert what_is_wrong(number, status, stdout, stderr) == wrong


def test_a_changed_weight_and_a_missing_file_are_detected(tmp_path):
    for run in ("whole", "run"):
        (tmp_path / run / "checkpoints").mkdir(parents=True)
        (tmp_path / run / "metrics.jsonl").write_text('{"step": 12, "valid_loss": 3.0}\n')
        for kind in ("state", "step"):
            path = tmp_path / run / "checkpoints" / f"{kind}-{STEPS:08d}.npz"
            seconds = {"progress/period_seconds": len(run)}
            means = {"progress/mean/0000": np.float32(3 + 1e-6 * len(run))}
            np.savez(path, weight=np.ones(3), **seconds, **means)
    assert differences(tmp_path / "whole", tmp_path / "run") == []
    step = f"checkpoints/step-{STEPS:08d}.npz"
    means = {"progress/mean/0000": np.float32(3.1)}
    np.savez(tmp_path / "run" / step, weight=np.nextafter(np.ones(3), 2), **seconds, **means)
    (tmp_path / "run" / "metrics.jsonl").write_text('{"step": 12, "valid_loss": 3.1}\n')
    (tmp_path / "run" / "checkpoints" / f"state-{STEPS:08d}.npz").unlink()
    assert set(differences(tmp_path / "whole", tmp_path / "run")) == {
        f"checkpoints/state-{STEPS:08d}.npz is missing",
        f"{step}: weight",
        f"{step}: progress/mean/0000",
        "metrics.jsonl",
    }


def test_a_hanging_process_is_ended_and_its_stacks_printed(tmp_path):
    code = "import time\ndef hang():\n    print(1, flush=True)\n    time.sleep(600)\nhang()"
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    began = time.monotonic()
    with subprocess.Popen([sys.executable, "-c", code], env=PRINTS_STACKS, **pipes) as process:
        assert process.stdout.readline() == b"1\n"
        native = end_with_stacks(process)
        assert b"in hang" in process.stderr.read()
    assert process.returncode == -signal.SIGABRT
    assert "no gdb" in native or "Thread" in native or "#0" in native
    assert time.monotonic() - began < 60


def test_training_survives_a_stop(tmp_path):
    (outcome,) = itertools.islice(tries(Lab(tmp_path, seed=103)), 1)
    assert outcome.held, outcome.detail
