"""Native and Python stacks of a process that does not end."""

import shutil
import signal
import subprocess

# Environment that makes Python print its stacks at SIGABRT.
PRINTS_STACKS = {"PYTHONFAULTHANDLER": "1"}


def end_with_stacks(process: subprocess.Popen) -> str:
    """Ends a process, which first prints Python's stacks on its stderr.

    Returns:
        The native stacks of all threads, or the reason why there are none.
    """
    native = _native_stacks(process.pid)
    process.send_signal(signal.SIGABRT)
    try:
        process.wait(timeout=10)
    except subprocess.TimeoutExpired:
        process.kill()
    return native


def _native_stacks(number: int) -> str:
    if not shutil.which("gdb"):
        return "no gdb: no native stacks"
    command = ["gdb", "-p", str(number), "-batch", "-ex", "thread apply all backtrace 40"]
    try:
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
    except subprocess.TimeoutExpired:
        return "gdb: no native stacks within 120 s"
    return done.stdout.decode(errors="replace")
