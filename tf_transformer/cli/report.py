"""Reports that fit a terminal: wrapped text, and rows of wide tables as paragraphs."""

import re
import sys
import unicodedata
from collections.abc import Sequence

from tf_transformer.cli.terminal import width, wrapped

_RULE = re.compile(r"(?=.*--)[-|: ]+")  # below a table's header, in Markdown and in plain text


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
        The text, wrapped at words. Code stays whole, for pasting. A table that is too wide
        loses its lines and padding; if it is still too wide, each row becomes a paragraph,
        `first cell  header value; header value`.
    """
    parts = re.split(r"(?ms)(^```.*?^```$|\n\n)", text)  # the odd ones match
    parts[::2] = [_block(part, columns) for part in parts[::2]]
    return "".join(parts)


def _block(text: str, columns: int) -> str:
    lines = text.strip("\n").split("\n")
    if max(map(len, lines)) <= columns:
        return text
    if len(lines) > 2 and _RULE.fullmatch(lines[1]):
        lines = _narrowed(lines, columns)
    return text.replace(text.strip("\n"), wrapped("\n".join(lines), columns, "  "))


def _has_wide(text: str) -> bool:
    return any(unicodedata.east_asian_width(char) in "WF" for char in text)


def _narrowed(table: list[str], columns: int) -> list[str]:
    """Returns the lines of a table that is too wide: narrower columns, or paragraphs."""
    starts = [part.start() for part in re.finditer("-+", table[1])]
    header, _, *rows = (_cells(line, starts) for line in table)
    if any(len(row) != len(header) for row in rows) or _has_wide("".join(table)):
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
