"""Text on a terminal: coloured messages, kept apart from progress bars, and fitted reports."""

import logging
import os
import shutil
import sys
import textwrap
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

from tf_transformer.tables import Part, Table, joined

_RED, _YELLOW = 31, 33
_HANGING = "  "  # indents the second and later lines of a message


def width() -> int:
    """Returns the columns of the terminal, or 80 if there is none."""
    return shutil.get_terminal_size().columns


def wrapped(text: str, columns: int, hanging: str) -> str:
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


def print_report(*parts: Part, style: str = "simple") -> None:
    """Prints a report to stdout: as it is in a file, fitted to the width of a terminal.

    Args:
        *parts: paragraphs, code and tables, between which is an empty line.
        style: of the tables.
    """
    shown = [fitted(part, width(), style) for part in parts] if sys.stdout.isatty() else parts
    sys.stdout.write(joined(shown, style))


def fitted(part: Part, columns: int, style: str = "simple") -> str:
    """Fits a part of a report to a terminal.

    Paragraphs are wrapped between words; code is unchanged, for pasting. A table that is too
    wide loses its lines; if it is still too wide, each row becomes a paragraph.
    """
    if isinstance(part, Table):
        for text in (part.text(style), part.text("plain")):
            if max(map(len, text.split("\n"))) <= columns:
                return text
        part = "\n".join(part.paragraphs())
    return part if part.startswith("```") else wrapped(part, columns, _HANGING)
