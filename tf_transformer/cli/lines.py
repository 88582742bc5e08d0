"""Lines of stdin in chunks, and lines to print."""

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tf_transformer.data.corpus import arriving_lines, read_lines
from tf_transformer.errors import UserError
from tf_transformer.progress import ProgressBars

# Sentences sorted by length together: few at first, so that output begins soon. The last size
# holds for all further chunks, which bounds the memory.
SIZES = (100, 1_000, 10_000)


def require_equal_lengths(
    name: str | Path, lines: Sequence[str], other: str | Path, other_lines: Sequence[str]
) -> None:
    """Refuses two files with different numbers of lines, or without any."""
    if len(lines) != len(other_lines) or not lines:
        raise UserError(
            "Both files must have the same number of lines, at least one. Received: "
            f"{name} with {len(lines):,}, {other} with {len(other_lines):,}."
        )


def add_line_buffered_option(parser: argparse.ArgumentParser) -> None:
    """--line-buffered."""
    parser.add_argument(
        "--line-buffered",
        action="store_true",
        help="answer the lines that have arrived without waiting for more, as a coprocess; "
        "slower if many lines are available at once",
    )


def stdin_chunks(line_buffered: bool, sizes: Sequence[int] = SIZES) -> Iterator[list[str]]:
    """The lines of stdin: those that have arrived, or lists of these sizes; see `in_chunks`.

    On a terminal each is read when the one before has been answered.
    """
    if is_conversation():
        return _typed_lines()
    return arriving_lines(0) if line_buffered else in_chunks(read_lines(0), sizes)


def stdin_bars() -> ProgressBars:
    """Progress bars of a command that reads stdin; none in a conversation."""
    return ProgressBars(shown=False if is_conversation() else None)


def is_conversation() -> bool:
    """Tells whether somebody types the lines and reads the answers."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _typed_lines() -> Iterator[list[str]]:
    """Prompts for a line at a time, until Ctrl-D."""
    with suppress(ImportError):
        import readline  # noqa: F401  # lines can be edited then
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    print("A sentence, then Enter; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            yield [input("> ")]
        except EOFError:
            print()
            return


def in_chunks(lines: Iterable[str], sizes: Sequence[int] = SIZES) -> Iterator[list[str]]:
    """Lists of at most these sizes, the last of which holds for all that follow."""
    lines = iter(lines)
    for size in itertools.chain(sizes, itertools.repeat(sizes[-1])):
        if not (chunk := list(itertools.islice(lines, size))):
            return
        yield chunk


def one_line(text: str) -> str:
    """Replaces line ends, which byte pieces can spell: output stays aligned with input."""
    return text.replace("\r", " ").replace("\n", " ")
