"""train.py resumes bit for bit after any kill or signal, and workers after each other's."""

import fcntl
import json
import os
import pty
import re
import shutil
import signal
import socket
import subprocess
import termios
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
from command_line import environment, run_here, train_command

from tf_transformer.cli.main import main
from tf_transformer.run.checkpoints import CheckpointFolder, is_valid
from tools.compare_commits.comparison import difference
from tools.storm.lab import PRINTS_STACKS, end_with_stacks, set_options

STEPS, PERIOD = 36, 12
SETTINGS = (
    "model.d_model=32",
    f"training.steps={STEPS}",
    f"training.evaluate_every={PERIOD}",
    "training.save_minutes=0.0005",  # so that about half of the time is spent writing
    "training.ema_decay=0.9",
    "decoding.beam_size=1",
    "decoding.max_extra_length=2",
)
SECONDS = 300
RESUME = "run the same command again to resume"


@dataclass(frozen=True)
class Session:
    """The status and output of a command."""

    status: int
    lines: list[str]
    stderr: str

    def line(self, pattern: str) -> re.Match:
        """Returns the match of the only line that matches."""
        (match,) = filter(None, (re.fullmatch(pattern, line) for line in self.lines))
        return match


def session(command: list[str], meanwhile: Callable[[subprocess.Popen], None]) -> Session:
    """Runs a command to its end; `meanwhile` does something to its process."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=environment() | PRINTS_STACKS, **pipes) as process:
        try:
            meanwhile(process)
            return ended(process)
        finally:
            process.kill()


def session_here(options: list[str], run: Path) -> Session:
    """Trains undisturbed, in this process."""
    done = run_here(["train", *options, "--output", str(run)])
    return Session(done.returncode, done.stdout.splitlines(), done.stderr)


def ended(process: subprocess.Popen) -> Session:
    """Waits for the end of a process; fails with its Python and native stacks if it hangs."""
    try:
        stdout, stderr = process.communicate(timeout=SECONDS)
    except subprocess.TimeoutExpired:
        native = end_with_stacks(process)
        pytest.fail(f"no end after {SECONDS} s: {process.communicate()}\n{native}")
    return Session(process.returncode, stdout.decode().splitlines(), (stderr or b"").decode())


def session_in_a_terminal(command: list[str], closed_when: Callable[[], object]) -> Session:
    """Runs a command whose terminal (stdin, stderr) closes when `closed_when` is true."""
    terminal, end = pty.openpty()
    os.set_blocking(terminal, False)
    ends = {"stdin": end, "stderr": end, "stdout": subprocess.PIPE}
    with subprocess.Popen(
        command, env=environment(), start_new_session=True, preexec_fn=_take_terminal, **ends
    ) as process:
        os.close(end)

        def read_and_look() -> object:
            with suppress(BlockingIOError):
                os.read(terminal, 4096)  # otherwise the progress bar would fill it
            return closed_when()

        try:
            wait_until(process, read_and_look)
            os.close(terminal)
            return ended(process)
        finally:
            process.kill()


def _take_terminal() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def wait_until(process: subprocess.Popen, condition: Callable[[], object]) -> None:
    end = time.monotonic() + SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.001)


def within_a_write(run: Path, then: Callable[[], None]) -> Callable[[subprocess.Popen], None]:
    """Stops a process while it writes a state, calls `then`, and kills the process."""
    folder = CheckpointFolder(run / "checkpoints")

    def half_written() -> bool:
        return bool(folder.state_steps() and list(folder.path.glob(".state-*.tmp")))

    def send(process: subprocess.Popen) -> None:
        while True:
            wait_until(process, half_written)
            process.send_signal(signal.SIGSTOP)
            os.waitpid(process.pid, os.WUNTRACED)
            if half_written():
                break
            process.send_signal(signal.SIGCONT)
        then()
        process.kill()
        process.wait()
        assert half_written()

    return send


@dataclass(frozen=True)
class Story:
    """An undisturbed run, a disturbed one with the same options, and their sessions."""

    whole: Path
    disturbed: Path
    options: list[str]
    sessions: dict[str, Session]


@pytest.fixture(scope="module")
def story(trained_run, tmp_path_factory, no_nohup) -> Story:
    """Killed during a write, terminal closed, stopped after 5 steps, and trained to the end."""
    folder = tmp_path_factory.mktemp("story")
    tokenizer = f"data.tokenizer={trained_run.path / 'tokenizer.model'}"
    options = trained_run.options + set_options(*SETTINGS, tokenizer)
    whole, run = folder / "whole", folder / "disturbed"
    sessions = {"whole": session_here(options, whole)}
    assert (sessions["whole"].status, sessions["whole"].stderr) == (0, ""), sessions
    command, states = train_command(options, run), CheckpointFolder(run / "checkpoints")

    def second() -> None:
        sessions["beside"] = session_here(options, run)

    sessions["write"] = session(command, within_a_write(run, second))
    sessions["hangup"] = session_in_a_terminal(
        command, lambda: max(states.state_steps(), default=0) >= PERIOD // 2
    )
    sessions["stop"] = session_here([*options, "--stop-after", "5 steps"], run)
    assert all(is_valid(path) for path in states.path.iterdir())
    sessions["end"] = session_here(options, run)
    return Story(whole, run, options, sessions)


def history(run: Path) -> list[dict[str, float]]:
    """Returns the evaluations of a run, without times."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    times = {"tokens_per_second", "train_seconds"}
    return [{k: v for k, v in json.loads(line).items() if k not in times} for line in lines]


def test_a_disturbed_run_ends_with_identical_files(story):
    """Weights, averages, optimizer, dropout seeds, position in the data, and evaluations."""
    folders = [run / "checkpoints" for run in (story.whole, story.disturbed)]
    names = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    last = [f"{kind}-{STEPS:08d}.npz" for kind in ("state", "step")]
    assert {*last, "best.npz", "average.npz"} <= set(names[0]) & set(names[1])
    assert not [name for name in names[1] if name.endswith(".tmp")]
    for name in last + ["best.npz", "average.npz"]:
        found = difference(folders[0] / name, folders[1] / name)
        assert not found, (name, found, [each.lines for each in story.sessions.values()])
    for found, expected in zip(history(story.disturbed), history(story.whole), strict=True):
        assert len([name for name in expected if name.startswith("valid_")]) > 5
        assert found == expected
    assert [record["step"] for record in history(story.whole)] == [12, 24, 36]


def test_every_session_resumes_where_the_previous_one_stopped(story):
    """None reports an error, and none starts from the beginning."""
    sessions = [story.sessions[key] for key in ("hangup", "stop", "end")]
    assert [one.stderr for one in sessions] == [""] * 3
    steps = [int(one.line(r"resuming from step (\d+)")[1]) for one in sessions]
    assert 0 < steps[0] <= steps[1] < steps[2] == steps[1] + 5 < STEPS


def test_a_kill_during_a_write_loses_no_checkpoint(story):
    assert story.sessions["write"].status == -signal.SIGKILL
    assert story.sessions["end"].status == 0


def test_a_second_process_on_the_same_run_is_refused(story):
    """The first is stopped in the middle of a write."""
    beside = story.sessions["beside"]
    assert beside.status == 1
    assert re.fullmatch(
        r"error: \S+/disturbed is in use by another process\. .*\n", beside.stderr
    )
    assert not [line for line in beside.lines if "step" in line]


@pytest.mark.parametrize(
    ("key", "reason", "status", "then"),
    [("hangup", "SIGHUP", 129, "stop"), ("stop", r"`stop_after` \(5 steps\)", 0, "end")],
)
def test_a_session_that_ends_early_saves_its_step_and_reports_it(
    story, key, reason, status, then
):
    stopped = story.sessions[key]
    assert (stopped.status, stopped.stderr) == (status, "")
    found = stopped.line(rf"stopped at step (\d+) by {reason}; {RESUME}")
    assert stopped.lines[-1] == found[0]
    asked = f"{reason}: stopping after this step; repeat to stop at once"
    assert stopped.lines.count(asked) <= 1  # none if the signal arrived between steps
    assert story.sessions[then].line(rf"resuming from step {found[1]}")


def test_a_run_resumes_on_other_devices_and_batches_with_a_notice(story, tmp_path, capsys):
    run = Path(shutil.copytree(story.disturbed, tmp_path / "run"))
    options = [*story.options, "--devices", "2"]
    options += set_options("training.batch_tokens=512", "training.steps=38")
    assert main(["train", *options, "--output", str(run)]) == 0
    stdout = capsys.readouterr().out
    assert f"resuming from step {STEPS}\n" in stdout
    changes = [line for line in stdout.splitlines() if "bit for bit" in line]
    assert changes == [
        "2 instead of 1 devices and batches of another size: from here on, not bit for bit as "
        "in an unchanged run"
    ]
    assert history(run)[-1]["step"] == 38
    assert history(run)[:3] == history(story.disturbed)


# Without dropout, whose masks differ between replicas, and with an epsilon at which Adam does
# not amplify rounding errors.
WORKER_SETTINGS = (
    "model.dropout=0", "model.d_model=32", "model.d_ff=32", "model.num_heads=2",
    "training.steps=60", "training.evaluate_every=20", "training.save_minutes=0.0005",
    "training.batch_tokens=512", "training.learning_rate_scale=0.2", "training.epsilon=1e-6",
    "decoding.beam_size=1", "decoding.max_extra_length=2",
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


def wait_for(pattern: str, run: Path, workers: list[subprocess.Popen]) -> None:
    while not list((run / "checkpoints").glob(pattern)):
        assert all(worker.poll() is None for worker in workers)
        time.sleep(0.01)


def test_two_workers_stopped_and_killed_train_the_weights_of_one_process(trained_run, tmp_path):
    options = trained_run.options + set_options(*WORKER_SETTINGS)
    one, two = tmp_path / "one", tmp_path / "two"
    command = train_command(options, two)
    workers = start_workers(command, tmp_path)
    wait_for("state-*", two, workers)
    workers[1].send_signal(signal.SIGTERM)
    assert [worker.wait(timeout=60) for worker in workers] == [143, 143]
    log = (tmp_path / "worker-0.log").read_text()
    stopped = re.search(r"^stopped at step (\d+) by another worker; ", log, re.M)[1]
    assert (two / "checkpoints" / f"state-{int(stopped):08d}.npz").exists()

    chief, other = start_workers(command, tmp_path)
    wait_for("step-*20.npz", two, [chief, other])
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

    alone = session_here(options + set_options("training.steps=20"), one)
    assert alone.status == 0, alone.stderr
    expected, found = weights(one, 20), weights(two, 20)
    assert expected.keys() == found.keys()
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], atol=2e-5, err_msg=name)
