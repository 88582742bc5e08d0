"""Sessions: when one stops, what a second signal does, and children that get the signals."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tf_transformer.base.errors import UserError
from tf_transformer.base.system import run_child
from tf_transformer.training.sessions import Budget, Interrupted, Stopper

pytestmark = pytest.mark.usefixtures("no_nohup")

NAMED = [(signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM"), (signal.SIGHUP, "SIGHUP")]
SIGNALS = pytest.mark.parametrize(("number", "name"), NAMED)


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("45s", Budget(seconds=45)),
        ("90m", Budget(seconds=5_400)),
        ("2h", Budget(seconds=7_200)),
        ("1.5 h", Budget(seconds=5_400)),
        (" 0.5s ", Budget(seconds=0.5)),
        ("500 steps", Budget(steps=500)),
    ],
)
def test_a_budget_is_a_time_or_a_number_of_steps(text, budget):
    assert Budget.parse(text) == budget


@pytest.mark.parametrize(
    "text", ["", "2", "h", "-2h", "0s", "0 steps", "1.5 steps", "2 weeks", "2h30m", "1e3s"]
)
def test_other_budgets_are_refused(text):
    with pytest.raises(UserError, match=r"2h, 90m or 45s, or '500 steps', .* Received: '.*'"):
        Budget.parse(text)


def test_outside_the_main_thread_only_the_budget_applies():
    """A server or scheduler may train in a thread, which cannot handle signals."""
    reasons = []

    def train():
        with Stopper(Budget(steps=1)) as stopper:
            stopper.after_step()
            reasons.append(stopper.reason)

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    assert reasons == ["`stop_after` (1 steps)"]


def test_a_budget_of_steps_ends_after_that_many_steps():
    stopper = Stopper(Budget(steps=3))
    assert [stopper.after_step() for _ in range(4)] == [False, False, True, True]
    with pytest.raises(
        Interrupted, match=r"^stopped at step 7 by `stop_after` \(3 steps\)$"
    ) as stop:
        stopper.check(" at step 7")
    assert stop.value.status == 0


def test_a_budget_of_time_ends_when_it_has_passed():
    stopper = Stopper(Budget(seconds=0.2))
    assert not stopper.after_step()
    stopper.check()
    time.sleep(0.2)
    assert stopper.after_step()
    with pytest.raises(Interrupted, match=r"by `stop_after` \(0.2 seconds\)"):
        stopper.check()


@SIGNALS
def test_a_signal_during_a_step_waits_for_its_end(caplog, number, name):
    caplog.set_level("INFO", "tf_transformer")
    with Stopper() as stopper:
        stopper.waiting = True
        assert not stopper.after_step()
        os.kill(os.getpid(), number)
        assert stopper.after_step()
        assert caplog.messages == [f"{name}: stopping after this step; repeat to stop at once"]
        with pytest.raises(Interrupted, match=f"^stopped at step 5 by {name}$") as stop:
            stopper.check(" at step 5")
    assert stop.value.status == 128 + number


@SIGNALS
@pytest.mark.parametrize("replacement", [None, ValueError("None values not supported")])
def test_a_signal_between_steps_stops_at_once(number, name, replacement):
    """Even if something replaces the exception on its way, as TensorFlow does while tracing."""
    with pytest.raises(Interrupted, match=f"^stopped by {name}$") as stop, Stopper():
        try:
            os.kill(os.getpid(), number)
            time.sleep(5)
        except Interrupted as interrupted:
            raise (replacement or interrupted) from None
    assert stop.value.status == 128 + number


@SIGNALS
def test_signal_handlers_are_restored(number, name):
    before = signal.getsignal(number)
    with Stopper():
        assert signal.getsignal(number) != before
    assert signal.getsignal(number) == before


def test_under_nohup_a_closing_terminal_stops_nothing():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with Stopper() as stopper:
            os.kill(os.getpid(), signal.SIGHUP)
            stopper.listen()
            os.kill(os.getpid(), signal.SIGHUP)
            assert not stopper.after_step()
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


TWICE = """
import os, sys, time
from tf_transformer.training.sessions import Stopper
with Stopper() as stopper:
    stopper.waiting = True
    os.kill(os.getpid(), int(sys.argv[1]))
    print("still here", flush=True)
    os.kill(os.getpid(), int(sys.argv[2]))
    print("never", flush=True)
    time.sleep(60)
"""


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (signal.SIGINT, signal.SIGINT),
        (signal.SIGTERM, signal.SIGTERM),
        (signal.SIGTERM, signal.SIGINT),
    ],
)
def test_a_second_signal_ends_the_process_immediately(first, second):
    command = [sys.executable, "-c", TWICE, str(int(first)), str(int(second))]
    root = Path(__file__).parents[2]
    done = subprocess.run(command, cwd=root, capture_output=True, timeout=60, check=False)
    assert done.returncode == -second, done.stderr
    assert done.stdout == b"still here\n"


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


def relayed(script, *words):
    return run_child([sys.executable, "-c", _BEGIN + script, *words])


@pytest.mark.parametrize("handler", ["signal.SIG_DFL", "lambda *_: sys.exit(0)"])
@pytest.mark.parametrize("number", [int(number) for number, _ in NAMED])
def test_the_status_is_the_signal_whether_the_process_dies_of_it_or_succeeds(number, handler):
    # Short sleeps: a signal just before one that is long would wait for its end.
    script = f"signal.signal({number}, {handler}); to_parent({number})\n"
    script += "for _ in range(600): time.sleep(0.1)"
    began = time.monotonic()
    assert relayed(script) == 128 + number
    assert time.monotonic() - began < 50


def test_every_signal_is_forwarded_once(tmp_path):
    assert relayed(_COUNT, str(tmp_path / "count")) == 143
    assert (tmp_path / "count").read_text() == "2"


def test_a_signal_before_the_process_exists_reaches_it(monkeypatch):
    class Killed(subprocess.Popen):
        def __init__(self, *words, **options) -> None:
            os.kill(os.getpid(), signal.SIGTERM)
            super().__init__(*words, **options)

    monkeypatch.setattr(subprocess, "Popen", Killed)
    assert run_child([sys.executable, "-c", "import time; time.sleep(60)"]) == 143


@pytest.mark.parametrize(("number", "status"), [(15, 143), (2, 130), (9, -9)])
def test_a_signal_to_the_process_alone_is_its_status(number, status):
    script = f"signal.signal(2, signal.SIG_DFL); os.kill(os.getpid(), {number})"
    assert relayed(script) == status


def test_without_signals_the_status_is_that_of_the_process():
    before = [signal.getsignal(number) for number, _ in NAMED]
    assert relayed("sys.exit(75)") == 75
    assert [signal.getsignal(number) for number, _ in NAMED] == before


def test_nohup_is_respected():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert relayed("to_parent(signal.SIGHUP); time.sleep(0.2)") == 0
    finally:
        signal.signal(signal.SIGHUP, before)
