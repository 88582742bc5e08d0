"""Text on a terminal: coloured messages, kept apart from progress bars, and fitted reports."""

import logging
import os
import re
import shutil
import sys
import textwrap
import unicodedata
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TextIO

_RED, _YELLOW = 31, 33
_HANGING = "  "  # indents the second and later lines of a message
_RULE = re.compile(r"(?=.*--)[-|: ]+")  # below a table's header, in Markdown and in plain text


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


def print_report(text: str) -> None:
    """Prints a report to stdout: unchanged in a file, fitted to the width of a terminal."""
    sys.stdout.write(fitted(text, width()) if sys.stdout.isatty() else text)


def fitted(text: str, columns: int) -> str:
    """Fits a report to a terminal.

    Args:
        text: paragraphs, code between ```, and tables of `tabulate`, with an empty line after
            each of them.
        columns: width of the terminal.

    Returns:
        The text, wrapped between words. Code is unchanged, for pasting. A table that is too
        wide loses its lines and padding; if it is still too wide, each row becomes a paragraph,
        `first cell  header value; header value`.
    """
    parts = re.split(r"(?ms)(^```.*?^```$|\n\n)", text)  # odd parts are separators
    parts[::2] = [_block(part, columns) for part in parts[::2]]
    return "".join(parts)


def _block(text: str, columns: int) -> str:
    lines = text.strip("\n").split("\n")
    if max(map(len, lines)) <= columns:
        return text
    if len(lines) > 2 and _RULE.fullmatch(lines[1]):
        lines = _narrowed(lines, columns)
    return text.replace(text.strip("\n"), wrapped("\n".join(lines), columns, _HANGING))


def _narrowed(table: list[str], columns: int) -> list[str]:
    """Narrows the columns of a table that is too wide, or turns its rows into paragraphs."""
    starts = [part.start() for part in re.finditer("-+", table[1])]
    header, _, *rows = (_cells(line, starts) for line in table)
    is_wide = any(unicodedata.east_asian_width(char) in "WF" for char in "".join(table))
    if is_wide or any(len(row) != len(header) for row in rows):
        return table  # cells cannot be told apart
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    if sum(widths) + 2 * len(widths[1:]) <= columns:
        return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in (header, *rows)]
    return [_paragraph(header, row) for row in rows]


def _paragraph(header: Sequence[str], row: Sequence[str]) -> str:
    named = zip(header[1:], row[1:], strict=True)
    text = "; ".join(f"{name} {cell}".strip() for name, cell in named if cell)
    return f"{row[0]}  {text}"


def _cells(line: str, starts: Sequence[int]) -> list[str]:
    """Returns the cells of a line: between bars, or aligned with the segments of the rule."""
    if line.startswith("|"):
        return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
    ends = [*starts[1:], None]
    return [line[first:end].strip() for first, end in zip(starts, ends, strict=True)]
