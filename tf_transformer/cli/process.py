"""A command as the whole of a process, which ends in seconds whatever its threads do."""

import atexit
import faulthandler
import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn, TextIO

SECONDS_TO_END = 5
_SECONDS_TO_EXPLAIN = 1

_is_a_command = threading.Event()  # set in a process that `run_process` may end


def run_process(main: Callable[[], int]) -> NoReturn:
    """Runs `main` and ends the process with its status, without the interpreter's own end.

    At its end the interpreter destroys what is left of a program while no other thread may run
    Python code any more. A `tf.data` iterator over two devices then waits for its generator's
    thread, for ever; Keras leaves such iterators to the garbage collector.
    """
    _open_closed_streams()
    _is_a_command.set()
    status = flush_output(_status_of(main))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to be told about it
    must_end(status)
    with suppress(BaseException):
        atexit._run_exitfuncs()  # temporary files go; the interpreter's end would do this too
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def must_end(status: int) -> None:
    """Says that all is saved and printed: in some seconds the process ends with this status.

    If it has not ended by itself until then, the Python stack of every thread is printed. In a
    process that is not a command's alone, such as a notebook's, nothing happens.
    """
    if not _is_a_command.is_set():
        return
    end = SECONDS_TO_END + _SECONDS_TO_EXPLAIN
    _later(SECONDS_TO_END, _explain, status)
    _later(end, os._exit, status)
    # For code that keeps all other threads from running Python: its status can only be 1.
    faulthandler.dump_traceback_later(end + _SECONDS_TO_EXPLAIN, exit=True, file=2)


def flush_output(status: int) -> int:
    """Writes what standard output holds back; returns the status, 1 for 0 if that fails.

    A reader that has gone (`| head`) has what it wanted: that is no error.
    """
    try:
        sys.stdout.flush()
    except OSError as error:
        abandon_output(sys.stdout)
        if not isinstance(error, BrokenPipeError):
            print(f"error: standard output: {error.strerror or error}", file=sys.stderr)
            return status or 1
    return status


def abandon_output(stream: TextIO) -> None:
    """Lets all further output, and what is still held back, go nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _open_closed_streams() -> None:
    """Opens the standard streams that were closed (`>&-`) on nothing.

    The next file to be opened, a checkpoint perhaps, would get their number, and with it what
    is printed.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        continue
    os.close(number)
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)


def _status_of(main: Callable[[], int]) -> int:
    """What the interpreter would make of how `main` ends, but Ctrl-C is no traceback."""
    try:
        return main()
    except SystemExit as end:
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:  # before the command began
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1


def _explain(status: int) -> None:
    """Prints where the end is held up, on the system's stderr: Python's may be locked."""
    text = (
        f"The end takes longer than {SECONDS_TO_END} s. Everything is saved: ending with "
        f"status {status}. Where every thread is:\n"
    )
    os.write(2, text.encode())
    faulthandler.dump_traceback(file=2)


def _later(seconds: float, function: Callable[[int], object], status: int) -> None:
    timer = threading.Timer(seconds, function, [status])
    timer.daemon = True
    timer.start()
