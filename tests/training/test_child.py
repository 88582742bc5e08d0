"""A child process receives signals and does not outlive its parent."""

import os
import shutil
import signal
import subprocess
import sys
import time

import pytest
from command_line import environment

from tf_transformer.child import Relay
from tf_transformer.files import locked
from tf_transformer.run import Run

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_BEGIN = "import os, signal, sys, time\nto_parent = lambda n: os.kill(os.getppid(), n)\n"
# Counts the signals it receives, requests another after the first, and writes their number.
_COUNT = """
count = 0
def receive(number, frame):
    global count
    count += 1
    if count == 1:
        to_parent(signal.SIGTERM)
signal.signal(signal.SIGTERM, receive)
to_parent(signal.SIGTERM)
end = time.monotonic() + 60
while count < 2 and time.monotonic() < end:
    time.sleep(0.01)
time.sleep(0.3)
open(sys.argv[1], "w").write(str(count))
"""


pytestmark = pytest.mark.usefixtures("no_nohup")


def relayed(script, *words):
    with Relay() as relay:
        return relay.run([sys.executable, "-c", _BEGIN + script, *words])


@pytest.mark.parametrize("handler", ["signal.SIG_DFL", "lambda *_: sys.exit(0)"])
@pytest.mark.parametrize("number", [int(number) for number in SIGNALS])
def test_the_status_is_the_signal_whether_the_process_dies_of_it_or_succeeds(number, handler):
    script = f"signal.signal({number}, {handler}); to_parent({number}); time.sleep(60)"
    began = time.monotonic()
    assert relayed(script) == 128 + number
    assert time.monotonic() - began < 50


def test_every_signal_is_forwarded_once(tmp_path):
    assert relayed(_COUNT, str(tmp_path / "count")) == 143
    assert (tmp_path / "count").read_text() == "2"


def test_a_signal_before_the_process_exists_reaches_it():
    with Relay() as relay:
        os.kill(os.getpid(), signal.SIGTERM)
        assert relay.run([sys.executable, "-c", "import time; time.sleep(60)"]) == 143


@pytest.mark.parametrize(("number", "status"), [(15, 143), (2, 130), (9, -9)])
def test_a_signal_to_the_process_alone_is_its_status(number, status):
    script = f"signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), {number})"
    assert relayed(script) == status


def test_without_signals_the_status_is_that_of_the_process():
    before = [signal.getsignal(number) for number in SIGNALS]
    assert relayed("sys.exit(75)") == 75
    assert [signal.getsignal(number) for number in SIGNALS] == before


def test_nohup_is_respected():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert relayed("to_parent(signal.SIGHUP); time.sleep(0.2)") == 0
    finally:
        signal.signal(signal.SIGHUP, before)


def test_no_command_outlives_a_killed_parent():
    child = "import time; from tf_transformer.cli.process import run_process\n"
    child += "run_process(lambda: print('begun', flush=True) or time.sleep(600))"
    script = "import sys; from tf_transformer.child import Relay\n"
    script += f"with Relay() as relay: relay.run([sys.executable, '-c', {child!r}])"
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment(), stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout.readline() == "begun\n"
        parent.kill()
        began = time.monotonic()
        assert parent.stdout.read() == ""  # ends with the child
    assert time.monotonic() - began < 60


def test_a_training_with_a_killed_parent_saves_and_ends(trained_run, tmp_path):
    shutil.copytree(trained_run.path, tmp_path / "run")
    config = Run.open(tmp_path / "run").config
    endless = {"training.steps": 1_000_000, "training.evaluate_every": 1_000_000}
    run = Run.create_or_resume(tmp_path / "run", config.replace(endless))
    begun = run.checkpoints.state_steps()[-1]
    words = ["--config", str(run.path / "config.json")]
    script = (
        "from tf_transformer.run import Run; from tf_transformer.training.sessions import *\n"
    )
    script += f"run = Run.open({str(run.path)!r})\n"
    script += f"train_in_turn({{run.path: run.config}}, lambda *_: {words})"
    with subprocess.Popen(
        [sys.executable, "-c", script], env=environment(), stdout=subprocess.PIPE, text=True
    ) as parent:
        for line in parent.stdout:
            if "steps to go" in line:
                break
        parent.kill()
        rest = parent.stdout.read()  # ends with the child
    assert "SIGTERM" in rest
    with locked(run.path):
        assert run.checkpoints.state_steps()[-1] > begun
