"""A clean console: no TensorFlow noise, one line per event, errors without a traceback."""

import argparse
import gc
import logging
import sys
import traceback
from contextlib import suppress

from tf_transformer.cli.process import abandon_output, flush_output
from tf_transformer.cli.terminal import MessageFormatter, print_error, without_bars
from tf_transformer.errors import UserError, one_line
from tf_transformer.quiet import import_tensorflow

UNEXPECTED = 70  # exit status after an error that no one foresaw: sysexits.h's EX_SOFTWARE

# Keras imports these if they are installed, for features that this package does not use.
_HIDDEN = ("IPython", "matplotlib", "pandas", "scipy", "sklearn")


def import_tensorflow_quietly() -> None:
    """Calls `quiet.import_tensorflow`, and makes a first import seconds faster.

    Objects created during this import live until exit, so collecting garbage is wasted time.
    """
    if "tensorflow" in sys.modules:
        import_tensorflow()
        return
    collects = gc.isenabled()
    gc.collect()  # otherwise `freeze` would keep garbage for good
    hidden = [name for name in _HIDDEN if name not in sys.modules]
    for name in hidden:
        sys.modules[name] = None  # type: ignore[assignment]  # hides it
    gc.disable()
    try:
        import_tensorflow()
    finally:
        gc.freeze()
        if collects:
            gc.enable()
        for name in hidden:
            del sys.modules[name]


def run_command(options: argparse.Namespace) -> int:
    """Runs the command `options.module` and returns its exit status.

    An error prints one line, with `options.traceback` after the traceback. The status is 1 for
    a UserError (or its own), for lack of memory or disk, and `UNEXPECTED` for any other.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a notebook's streams take any text
            # UTF-8 in any locale, as in files; file names may contain other bytes.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    data = getattr(options.module, "STDOUT_IS_DATA", False)
    log = _log_to(sys.stderr if data else sys.stdout)
    try:
        return flush_output(options.module.command(options) or 0) or int(log.lost)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        abandon_output(sys.stdout)  # the reader has gone (`| head`) and wants no more
        return 0
    except Exception as error:
        if options.traceback:
            traceback.print_exception(error)
        return _report(error)


def _report(error: Exception) -> int:
    """Prints an error that ended a command in one line; returns the exit status."""
    if isinstance(error, UserError):
        print_error(one_line(error))
        return error.status
    if isinstance(error, OSError):
        # A path of an impossible name, or else a full disk behind stdout; code that reads or
        # writes files raises a UserError.
        where = f"{error.filename}: " if error.filename else ""
        print_error(one_line(f"{where}{error.strerror or error}"))
        if not error.filename:
            abandon_output(sys.stdout)
        return flush_output(1)
    exhausted = type(error).__name__ == "ResourceExhaustedError"  # TensorFlow's
    if exhausted or isinstance(error, MemoryError):
        print_error(
            "out of memory. In training, lower --max-tokens-per-device, which does not change "
            "the result; in decoding, lower decoding.batch_tokens."
        )
        return 1
    kind = type(error).__name__
    print_error(one_line(f"unexpected {kind}: {error}; --traceback shows where"))
    return UNEXPECTED


class _Handler(logging.StreamHandler):
    """A log handler that survives the loss of its reader (`| head`) and a full disk.

    Attributes:
        lost: whether a line could not be written, which has been reported as an error.
    """

    lost = False

    def emit(self, record: logging.LogRecord) -> None:
        with without_bars(self.stream):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        error = sys.exception()
        if isinstance(error, BrokenPipeError):
            return
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self.lost = True
        abandon_output(self.stream)  # or buffered lines would fail again with every new one
        with suppress(OSError):
            print_error(f"cannot write the log: {error.strerror or error}")


def _log_to(stream) -> _Handler:
    handler = _Handler(stream)
    handler.setFormatter(MessageFormatter(stream))
    logger = logging.getLogger("tf_transformer")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return handler
