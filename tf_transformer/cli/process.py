"""The process of a command: it ends within seconds, whatever its threads are doing."""

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

_is_a_command = threading.Event()  # set in a process that `run_process` may end


def run_process(main: Callable[[], int]) -> NoReturn:
    """Runs `main` and ends the process with its status, without the interpreter's shutdown.

    At shutdown the interpreter destroys the remaining objects while no other thread may run
    Python code. A `tf.data` iterator over two devices then waits forever for its generator's
    thread; Keras leaves such iterators to the garbage collector.
    """
    _open_closed_streams()
    _is_a_command.set()
    status = flush_output(_status_of(main))
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # nothing is left to interrupt
    must_end(status)
    with suppress(BaseException):
        atexit._run_exitfuncs()  # deletes temporary files, as the interpreter's shutdown would
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(status)


def must_end(status: int) -> None:
    """Makes the process end within seconds; call it when everything is saved and printed.

    If the process does not end by itself, prints the Python stack of every thread and ends it
    with `status`. Does nothing outside a command's process, such as in a notebook.
    """
    if not _is_a_command.is_set():
        return
    timer = threading.Timer(SECONDS_TO_END, _end, [status])
    timer.daemon = True
    timer.start()
    # In case a thread never releases the interpreter; the status is then 1.
    faulthandler.dump_traceback_later(SECONDS_TO_END + 2, exit=True, file=2)


def flush_output(status: int) -> int:
    """Flushes standard output; returns the status, or 1 instead of 0 if that fails.

    A reader that has gone away (`| head`) is not an error.
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
    """Discards all further output, including what is still buffered."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def _open_closed_streams() -> None:
    """Connects standard streams that were closed (`<&-`) to the null device, only to write.

    Otherwise the next file to be opened, perhaps a checkpoint, would get such a descriptor and
    receive all printed text. Reading stdin then fails, rather than finding no text.
    Raises SystemExit if stdout was closed, as all results would be lost.
    """
    while (number := os.open(os.devnull, os.O_WRONLY)) <= 2:
        continue
    os.close(number)
    is_lost = sys.stdout is None
    sys.stdin = sys.stdin or os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", encoding="utf-8", closefd=False)
    if is_lost:
        sys.exit("error: standard output is closed. Write it to a file, or to /dev/null.")


def _status_of(main: Callable[[], int]) -> int:
    """Runs `main`; returns the interpreter's exit status, without a traceback for Ctrl-C."""
    try:
        return main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except KeyboardInterrupt:  # before the command started
        print("interrupted", file=sys.stderr)
        return 128 + signal.SIGINT
    except BaseException:
        sys.excepthook(*sys.exc_info())
        return 1


def _end(status: int) -> None:
    """Prints every stack to descriptor 2, as `sys.stderr` may be locked; ends the process."""
    text = (
        f"Exiting takes longer than {SECONDS_TO_END} s. Everything is saved: ending with "
        f"status {status}. Stack of every thread:\n"
    )
    os.write(2, text.encode())
    faulthandler.dump_traceback(file=2)
    os._exit(status)
