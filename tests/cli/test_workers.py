"""Two workers on one machine train the same weights as one process, even if one dies."""

import json
import re
import signal
import socket
import subprocess
import time
from pathlib import Path

import numpy as np
import pytest
from command_line import environment, run_here, train_command

# Without dropout, whose masks differ between replicas, and with an epsilon at which Adam does
# not amplify rounding errors.
SETTINGS = (
    "model.dropout=0", "model.d_model=32", "model.d_ff=32", "model.num_heads=2",
    "training.steps=30", "training.evaluate_every=10", "training.batch_tokens=512",
    "training.learning_rate_scale=0.2", "training.epsilon=1e-6", "decoding.beam_size=1",
    "decoding.max_extra_length=2",
)  # fmt: skip


def free_addresses(number: int) -> list[str]:
    sockets = [socket.socket() for _ in range(number)]
    for each in sockets:
        each.bind(("localhost", 0))
    addresses = [f"localhost:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def start_workers(command: list[str], folder: Path) -> list[subprocess.Popen]:
    addresses = free_addresses(2)
    workers = []
    for index in range(2):
        task = {"cluster": {"worker": addresses}, "task": {"type": "worker", "index": index}}
        with open(folder / f"worker-{index}.log", "wb") as log:
            workers.append(
                subprocess.Popen(
                    command,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment() | {"TF_CONFIG": json.dumps(task)},
                )
            )
    return workers


def weights(run: Path, step: int) -> dict[str, np.ndarray]:
    with np.load(run / "checkpoints" / f"step-{step:08d}.npz") as archive:
        return {name: archive[name] for name in archive if name.startswith("model/")}


@pytest.fixture
def options(trained_run) -> list[str]:
    return trained_run.options + [word for setting in SETTINGS for word in ("--set", setting)]


def wait_for_step(step: int, run: Path, workers: list[subprocess.Popen]) -> None:
    while not (run / "checkpoints" / f"state-{step:08d}.npz").exists():
        assert all(worker.poll() is None for worker in workers)
        time.sleep(0.01)


def test_two_workers_stopped_and_killed_train_the_weights_of_one_process(options, tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    command = train_command(options, two)
    workers = start_workers(command, tmp_path)
    wait_for_step(10, two, workers)
    workers[1].send_signal(signal.SIGTERM)
    assert [worker.wait(timeout=60) for worker in workers] == [143, 143]
    log = (tmp_path / "worker-0.log").read_text()
    stopped = re.search(r"^stopped at step (\d+) by another worker; ", log, re.M)[1]
    assert (two / "checkpoints" / f"state-{int(stopped):08d}.npz").exists()

    chief, other = start_workers(command, tmp_path)
    wait_for_step(20, two, [chief, other])
    other.kill()
    assert chief.wait(timeout=60) == 1
    log = (tmp_path / "worker-0.log").read_text()
    assert re.search(rf"^resuming from step {stopped}$", log, re.M)
    assert re.search(r"^device: CPU .* on 2 workers$", log, re.M)
    assert re.search(
        "^error: Another worker has ended .* resumes from the last checkpoint", log, re.M
    )
    assert "Traceback" not in log
    assert (tmp_path / "worker-1.log").read_text() == ""  # only the chief logs

    for run in (one, two):
        done = run_here(["train", *options, "--output", str(run)])
        assert done.returncode == 0, done.stderr
    assert re.search(r"^resuming from step 2\d$", done.stdout, re.M)
    expected, found = weights(one, 30), weights(two, 30)
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=2e-5, err_msg=name)
