"""A process ends within seconds with the right status, even if its interpreter would not."""

import os
import subprocess
import sys
import time

import pytest
from command_line import ROOT, environment

from tf_transformer.cli.process import SECONDS_TO_END

# Code that keeps a Python process from ending, run at its start.
BLOCKED = {
    "a thread": "import threading, time\n"
    "threading.Thread(target=time.sleep, args=(600,)).start()\n",
    "an exit function": "import atexit, time\natexit.register(time.sleep, 600)\n",
    "a destructor": "import sys, time\n"
    "class Slow:\n    def __del__(self): time.sleep(600)\n"
    "sys.slow = Slow()\n",
}
PROGRAMS = {
    "train.py": [str(ROOT / "train.py")],
    "export.py": [str(ROOT / "export.py")],
    "tf-transformer": ["-m", "tf_transformer.cli.main"],
}


def ended(command: list[str], first: str, folder, **options) -> subprocess.CompletedProcess:
    """Runs Python with `first` as `sitecustomize`; asserts that it ends in time."""
    (folder / "sitecustomize.py").write_text(first)
    path = os.pathsep.join([str(folder), str(ROOT)])
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, *command], env=environment() | {"PYTHONPATH": path},
        capture_output=True, text=True, timeout=60, check=False, **options,
    )  # fmt: skip
    assert time.monotonic() - began < 50
    return done


@pytest.mark.parametrize(
    ("program", "what"),
    [("train.py", "a thread"), ("export.py", "a thread"), ("tf-transformer", "a destructor")],
)
def test_nothing_delays_the_end_of_a_process(program, what, tmp_path):
    done = ended([*PROGRAMS[program], "--help"], BLOCKED[what], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usage: ")


def test_a_slow_exit_function_is_ended_after_seconds_and_named(tmp_path):
    done = ended(
        [*PROGRAMS["tf-transformer"], "translete"], BLOCKED["an exit function"], tmp_path
    )
    assert done.returncode == 2
    assert f"Exiting takes longer than {SECONDS_TO_END} s." in done.stderr
    assert 'process.py", line' in done.stderr


def run_process(body: str) -> list[str]:
    """Returns a command whose `main` has this body."""
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return [
        "-c",
        "import os, signal, sys, time\n"
        "from tf_transformer.cli.process import must_end, run_process\n"
        f"def main():\n{lines}\n"
        "run_process(main)",
    ]


# Sets the handler that a process on a terminal has: in the background Ctrl-C may be ignored.
CTRL_C = """signal.signal(signal.SIGINT, signal.default_int_handler)
os.kill(os.getpid(), signal.SIGINT)
time.sleep(9)"""


@pytest.mark.parametrize(
    ("body", "status", "stderr"),
    [
        ("return 130", 130, ""),
        ("sys.exit()", 0, ""),
        ("sys.exit(75)", 75, ""),
        (CTRL_C, 130, "interrupted\n"),
    ],
)
def test_the_exit_status_is_the_interpreters(body, status, stderr, tmp_path):
    done = ended(run_process(body), BLOCKED["a thread"], tmp_path)
    assert (done.returncode, done.stderr) == (status, stderr)


def test_an_unexpected_exception_prints_its_traceback_with_status_1(tmp_path):
    done = ended(run_process("raise ValueError('mine')"), BLOCKED["a thread"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.endswith("ValueError: mine\n")


ITERATOR = """
import itertools
from tf_transformer.cli.console import import_tensorflow_quietly
import_tensorflow_quietly()
import tensorflow as tf
from tf_transformer.training import devices
strategy = devices.make_strategy(2)
signature = tf.TensorSpec([], tf.int32)
make = lambda *_: tf.data.Dataset.from_generator(itertools.count, output_signature=signature)
class Cycle: pass
cycle = Cycle()
cycle.itself, cycle.iterator = cycle, iter(devices.distribute(strategy, make))
next(cycle.iterator)
return 143
"""


def test_an_iterator_over_two_devices_in_a_cycle_does_not_block_the_exit(tmp_path):
    """Keras's `fit` leaves such iterators, and the interpreter's shutdown waits forever."""
    done = ended(run_process(ITERATOR), "", tmp_path)
    assert (done.returncode, done.stderr) == (143, "")


def test_a_thread_that_holds_the_interpreter_lock_is_ended(tmp_path):
    locks = "import ctypes\nmust_end(0)\nctypes.PyDLL(None).sleep(600)"
    done = ended(run_process(locks), "", tmp_path)
    assert done.returncode == 1
    assert "in main" in done.stderr


def test_must_end_does_nothing_outside_a_command(tmp_path):
    code = (
        "import time\nfrom tf_transformer.cli.process import SECONDS_TO_END, must_end\n"
        "must_end(3)\ntime.sleep(SECONDS_TO_END + 2)\nprint('here')"
    )
    assert ended(["-c", code], "", tmp_path).stdout == "here\n"


def test_exit_functions_run_and_their_output_is_written(tmp_path):
    prints = "import atexit\natexit.register(print, 'at the end')\n"
    assert (
        ended(run_process("print('first')"), prints, tmp_path).stdout == "first\nat the end\n"
    )


@pytest.mark.parametrize("status", [0, 143])
def test_output_that_cannot_be_written_is_an_error(status, tmp_path):
    """Without PYTHONUNBUFFERED, with which it would be written at once."""
    body = f"print('lost')\nreturn {status}"
    command = [sys.executable, *run_process(body)]
    loud = {k: v for k, v in environment().items() if k != "PYTHONUNBUFFERED"}
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            command, env=loud, stdout=full, stderr=subprocess.PIPE, timeout=30
        )
    assert done.returncode == (status or 1)
    assert done.stderr == b"error: standard output: No space left on device\n"


def test_a_file_never_gets_the_descriptor_of_a_closed_stream(tmp_path):
    body = f"file = open({str(tmp_path / 'file')!r}, 'w')\n"
    body += "print('printed')\nos.write(2, b'!')\nreturn 0"
    assert closed((0, 2), body) == (0, "printed\n", "")
    assert (tmp_path / "file").read_bytes() == b""


def test_a_closed_stdout_or_stdin_is_an_error(tmp_path):
    """No result is lost without a word, and stdin does not count as empty."""
    lost = "error: standard output is closed. Write it to a file, or to /dev/null.\n"
    assert closed((1,), "open('file', 'w')\nreturn 0", cwd=tmp_path) == (1, "", lost)
    assert not [*tmp_path.iterdir()]
    reads = "from tf_transformer.data.text import read_lines\n"
    reads += "try: print(list(read_lines(0)))\nexcept ValueError as error: print(error)"
    assert closed((0,), reads)[1] == "stdin cannot be read: Bad file descriptor.\n"


def closed(numbers, body: str, **options) -> tuple[int, str, str]:
    """Runs a process whose `main` has this body, and whose streams `numbers` are closed."""
    command = [sys.executable, *run_process(body)]
    code = f"import os\nfor number in {numbers}: os.close(number)\n"
    code += f"os.execv({sys.executable!r}, {command!r})"
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment(), capture_output=True, text=True,
        timeout=30, **options,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr
