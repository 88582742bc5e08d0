"""train.py resumes bit for bit after any kill or signal, and workers after each other's."""

import fcntl
import json
import os
import pty
import random
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
from command_line import TrainedRun, environment, run_here, train_command
from helpers import bits_of

from tf_transformer.cli.main import main
from tf_transformer.run.checkpoints import CheckpointFolder, is_valid
from tools.storm.lab import PRINTS_STACKS, end_with_stacks

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


def after_step(run: Path, step: int, number: int) -> Callable[[subprocess.Popen], None]:
    """Sends a signal at a random moment after the state of a step is saved."""
    folder = CheckpointFolder(run / "checkpoints")

    def send(process: subprocess.Popen) -> None:
        wait_until(process, lambda: max(folder.state_steps(), default=0) >= step)
        time.sleep(random.uniform(0, 0.1))
        process.send_signal(number)

    return send


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


def begin(trained_run: TrainedRun, folder: Path, *more: str) -> Story:
    """Trains the undisturbed run, and returns it with the options of the disturbed one."""
    tokenizer = f"data.tokenizer={trained_run.path / 'tokenizer.model'}"
    words = [word for setting in (*SETTINGS, tokenizer) for word in ("--set", setting)]
    options = [*trained_run.options, *words, *more]
    whole = session_here(options, folder / "whole")
    assert (whole.status, whole.stderr) == (0, ""), whole
    return Story(folder / "whole", folder / "disturbed", options, {"whole": whole})


@pytest.fixture(scope="module")
def story(trained_run, tmp_path_factory, no_nohup) -> Story:
    """One device: killed during a write, terminal closed, and trained to the end."""
    story = begin(trained_run, tmp_path_factory.mktemp("one"))
    run, sessions = story.disturbed, story.sessions
    command = train_command(story.options, run)

    def second() -> None:
        sessions["beside"] = session_here(story.options, run)

    sessions["write"] = session(command, within_a_write(run, second))
    states = CheckpointFolder(run / "checkpoints").state_steps
    sessions["hangup"] = session_in_a_terminal(
        command, lambda: max(states(), default=0) >= PERIOD // 2
    )
    sessions["end"] = session_here(story.options, run)
    return story


@pytest.fixture(scope="module")
def story_of_two(trained_run, tmp_path_factory) -> Story:
    """Two devices: interrupted by Ctrl-C, by SIGTERM, and trained to the end."""
    story = begin(trained_run, tmp_path_factory.mktemp("two"), "--devices", "2")
    run, sessions = story.disturbed, story.sessions
    command = train_command(story.options, run)
    sessions["int"] = session(command, after_step(run, PERIOD // 2, signal.SIGINT))
    sessions["term"] = session(command, after_step(run, PERIOD + 2, signal.SIGTERM))
    sessions["end"] = session_here(story.options, run)
    return story


STORIES = pytest.mark.parametrize("name", ["story", "story_of_two"])


def history(run: Path) -> list[dict[str, float]]:
    """Returns the evaluations of a run, without times."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    times = {"tokens_per_second", "train_seconds"}
    return [{k: v for k, v in json.loads(line).items() if k not in times} for line in lines]


@STORIES
def test_a_disturbed_run_ends_with_identical_files(name, request):
    """Weights, averages, optimizer, dropout seeds, position in the data, and evaluations."""
    story = request.getfixturevalue(name)
    folders = [run / "checkpoints" for run in (story.whole, story.disturbed)]
    names = [sorted(path.name for path in folder.iterdir()) for folder in folders]
    last = [f"{kind}-{STEPS:08d}.npz" for kind in ("state", "step")]
    assert {*last, "best.npz", "average.npz"} <= set(names[0]) & set(names[1])
    assert not [name for name in names[1] if name.endswith(".tmp")]
    for name in last + ["best.npz", "average.npz"]:
        assert bits_of(folders[0] / name) == bits_of(folders[1] / name), name
    for found, expected in zip(history(story.disturbed), history(story.whole), strict=True):
        assert len([name for name in expected if name.startswith("valid_")]) > 5
        assert found == expected
    assert [record["step"] for record in history(story.whole)] == [12, 24, 36]


@pytest.mark.parametrize(
    ("name", "keys"), [("story", ["hangup", "end"]), ("story_of_two", ["term", "end"])]
)
def test_every_session_resumes_where_the_previous_one_stopped(name, keys, request):
    """None reports an error, and none starts from the beginning."""
    sessions = [request.getfixturevalue(name).sessions[key] for key in keys]
    assert [one.stderr for one in sessions] == [""] * len(keys)
    steps = [int(one.line(r"resuming from step (\d+)")[1]) for one in sessions]
    assert steps == sorted(steps)
    assert steps[0] > 0 and steps[-1] < STEPS


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
    ("name", "key", "signal_name", "status", "then"),
    [
        ("story", "hangup", "SIGHUP", 129, "end"),
        ("story_of_two", "int", "Ctrl-C", 130, "term"),
        ("story_of_two", "term", "SIGTERM", 143, "end"),
    ],
)
def test_a_signal_saves_the_current_step_and_reports_it(
    name, key, signal_name, status, then, request
):
    sessions = request.getfixturevalue(name).sessions
    stopped = sessions[key]
    assert (stopped.status, stopped.stderr) == (status, "")
    found = stopped.line(rf"stopped at step (\d+) by {signal_name}; {RESUME}")
    assert stopped.lines[-1] == found[0]
    asked = f"{signal_name}: stopping after this step; repeat to stop at once"
    assert stopped.lines.count(asked) <= 1  # none if the signal arrived between steps
    assert sessions[then].line(rf"resuming from step {found[1]}")


def test_stop_after_stops_a_run_that_can_be_resumed(story, tmp_path, capsys):
    """In this process, on a copy of a finished run."""
    run = Path(shutil.copytree(story.disturbed, tmp_path / "run"))
    arguments = ["train", *story.options, "--output", str(run)]
    more = ["--set", "training.steps=48"]
    assert main([*arguments, *more, "--stop-after", "5 steps"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == f"stopped at step 41 by --stop-after 5 steps; {RESUME}"
    assert main([*arguments, *more, "--stop-after", "0.001s"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "resuming from step 41" in lines
    assert lines[-1] == f"stopped at step 42 by --stop-after 0.001 seconds; {RESUME}"
    assert CheckpointFolder(run / "checkpoints").state_steps()[-1] == 42
    assert all(is_valid(path) for path in (run / "checkpoints").iterdir())


def test_a_run_resumes_on_other_devices_and_batches_with_a_notice(
    story_of_two, tmp_path, capsys
):
    run = Path(shutil.copytree(story_of_two.disturbed, tmp_path / "run"))
    options = [*story_of_two.options, "--devices", "1"]
    options += ["--set", "training.batch_tokens=512", "--set", "training.steps=38"]
    assert main(["train", *options, "--output", str(run)]) == 0
    stdout = capsys.readouterr().out
    assert f"resuming from step {STEPS}\n" in stdout
    changes = [line for line in stdout.splitlines() if "bit for bit" in line]
    assert changes == [
        "1 instead of 2 devices and batches of another size: from here on, not bit for bit as "
        "in an unchanged run"
    ]
    assert history(run)[-1]["step"] == 38
    assert history(run)[:3] == history(story_of_two.disturbed)


# Without dropout, whose masks differ between replicas, and with an epsilon at which Adam does
# not amplify rounding errors.
WORKER_SETTINGS = (
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
    return trained_run.options + [
        word for setting in WORKER_SETTINGS for word in ("--set", setting)
    ]


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
