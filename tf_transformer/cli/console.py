"""A clean console: one line per event or error, fitted to a terminal, no TensorFlow noise."""

import argparse
import gc
import logging
import os
import shutil
import sys
import textwrap
import traceback
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TextIO

from tf_transformer.base.errors import UserError, one_line
from tf_transformer.base.output import ReportPart, joined
from tf_transformer.base.system import import_tensorflow
from tf_transformer.cli.process import abandon_output, flush_output

UNEXPECTED = 70  # exit status after an error that no one foresaw: sysexits.h's EX_SOFTWARE

_RED, _YELLOW = 31, 33
_HANGING = "  "  # indents the second and later lines of a message


def import_tensorflow_quietly() -> None:
    """Calls `system.import_tensorflow`, and makes a first import a fifth faster.

    Objects created during this import live until exit, so collecting garbage is wasted time.
    """
    if "tensorflow" in sys.modules:
        import_tensorflow()
        return
    collects = gc.isenabled()
    gc.collect()  # otherwise `freeze` would keep garbage for good
    gc.disable()
    try:
        import_tensorflow()
    finally:
        gc.freeze()
        if collects:
            gc.enable()


# --- Running a command -------------------------------------------------------------------


def run_command(options: argparse.Namespace) -> int:
    """Runs `options.command` and returns its exit status.

    An error prints one line, with `options.traceback` after the traceback. The status is 1 for
    a UserError (or its own), for lack of memory or disk, and `UNEXPECTED` for any other. The
    log goes to stdout, or to stderr with `options.stdout_is_data`.
    """
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # a notebook's streams take any text
            # UTF-8 in any locale, as in files; file names may contain other bytes.
            stream.reconfigure(encoding="utf-8", errors="backslashreplace")
    log = _log_to(sys.stderr if options.stdout_is_data else sys.stdout)
    try:
        return flush_output(options.command(options) or 0) or int(log.lost)
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
    kind = type(error).__name__
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
    if kind == "ResourceExhaustedError" or isinstance(error, MemoryError):  # TensorFlow's first
        print_error(
            "out of memory. In training, lower --max-tokens-per-device, which does not change "
            "the result; in decoding, lower decoding.batch_tokens."
        )
        return 1
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


def _log_to(stream: TextIO) -> _Handler:
    handler = _Handler(stream)
    handler.setFormatter(MessageFormatter(stream))
    logger = logging.getLogger("tf_transformer")
    logger.handlers[:] = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return handler


# --- Text on a terminal ------------------------------------------------------------------


def width() -> int:
    """Returns the columns of the terminal, or 80 if there is none."""
    return shutil.get_terminal_size().columns


def wrapped(text: str, columns: int, hanging: str = _HANGING) -> str:
    """Wraps each line at spaces; words longer than a line, such as paths, stay whole."""
    return "\n".join(_wrapped(line, columns, hanging) for line in text.split("\n"))


def _wrapped(line: str, columns: int, hanging: str) -> str:
    indent = line[: len(line) - len(line.lstrip(" "))]
    return textwrap.fill(
        line, columns, subsequent_indent=indent + hanging, replace_whitespace=False,
        expand_tabs=False, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip


def print_error(message: str) -> None:
    """Prints an error to stderr: one line in a file, red and wrapped on a terminal."""
    print(_shown(f"error: {message}", sys.stderr, _RED), file=sys.stderr)


def print_line(line: str, hanging: str, warning: bool) -> None:
    """Prints a line of a report to stdout; wrapped on a terminal, with warnings in yellow."""
    print(_shown(line, sys.stdout, _YELLOW if warning else None, hanging))


class MessageFormatter(logging.Formatter):
    """Formats messages: one line in a file; wrapped on a terminal, with warnings in yellow."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__("%(message)s")
        self._stream = stream

    def format(self, record: logging.LogRecord) -> str:
        """Returns the message as displayed."""
        colour = _YELLOW if record.levelno >= logging.WARNING else None
        return _shown(super().format(record), self._stream, colour)


def without_bars(stream: TextIO) -> AbstractContextManager:
    """Removes progress bars while something else is written to a terminal."""
    if "tqdm" not in sys.modules or not stream.isatty():
        return nullcontext()
    from tqdm import tqdm

    return tqdm.external_write_mode(file=stream)


def _shown(text: str, stream: TextIO, colour: int | None, hanging: str = _HANGING) -> str:
    if not stream.isatty():
        return text
    text = wrapped(text, width(), hanging)
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return text if plain or colour is None else f"\033[{colour}m{text}\033[0m"


def print_report(*parts: ReportPart, style: str = "simple") -> None:
    """Prints a report to stdout: as it is in a file, with paragraphs wrapped on a terminal.

    Between its paragraphs, code and tables is an empty line; `style` is that of the tables.
    """
    if sys.stdout.isatty():
        parts = tuple(map(_wrapped_part, parts))
    sys.stdout.write(joined(parts, style))


def _wrapped_part(part: ReportPart) -> ReportPart:
    """Wraps a paragraph to the terminal; code is unchanged, for pasting, and so are tables."""
    if not isinstance(part, str) or part.startswith("```"):
        return part
    return wrapped(part, width())
