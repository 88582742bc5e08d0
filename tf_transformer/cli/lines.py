"""Lines of stdin in chunks, and lines to print."""

import argparse
import itertools
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tf_transformer.data.corpus import arriving_lines, read_lines, read_pairs
from tf_transformer.errors import UserError
from tf_transformer.progress import ProgressBars

# Sentences per chunk. A chunk is batched by length, so large ones are faster, but the first are
# small so that output starts soon. The last size is repeated, which bounds memory.
SIZES = (100, 1_000, 10_000)


def require_equal_lengths(
    name: str | Path, lines: Sequence[str], other: str | Path, other_lines: Sequence[str]
) -> None:
    """Raises UserError if two files have different numbers of lines, or none."""
    if len(lines) != len(other_lines) or not lines:
        raise UserError(
            "Both files must have the same number of lines, at least one. Received: "
            f"{name} with {len(lines):,}, {other} with {len(other_lines):,}."
        )


def read_some_pairs(source: str, target: str) -> list[tuple[str, str]]:
    """Reads two files as pairs of lines; raises UserError if there are none."""
    pairs = list(read_pairs(Path(source), Path(target)))
    if not pairs:
        raise UserError(f"{source} must have at least one sentence. Received: none.")
    return pairs


def add_line_buffered_option(parser: argparse.ArgumentParser) -> None:
    """Adds --line-buffered."""
    parser.add_argument(
        "--line-buffered",
        action="store_true",
        help="answer each line as it arrives, without waiting for more, as in a coprocess; "
        "slower when many lines are available at once",
    )


def stdin_chunks(line_buffered: bool) -> Iterator[list[str]]:
    """Returns the lines of stdin in chunks of `SIZES`, or as they arrive if `line_buffered`.

    On a terminal, the user is prompted for a line at a time.
    """
    if is_conversation():
        return _typed_lines()
    return arriving_lines(0) if line_buffered else in_chunks(read_lines(0))


def stdin_bars() -> ProgressBars:
    """Returns the progress bars of a command that reads stdin; hidden in a conversation."""
    return ProgressBars(shown=False if is_conversation() else None)


def is_conversation() -> bool:
    """Tells whether both stdin and stdout are a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def _typed_lines() -> Iterator[list[str]]:
    """Prompts for a line at a time, until Ctrl-D."""
    with suppress(ImportError):
        import readline  # noqa: F401  # makes lines editable
    sys.stdin.reconfigure(encoding="utf-8", errors="replace")  # type: ignore[union-attr]
    print("Type a sentence, then Enter; Ctrl-D ends.", file=sys.stderr)
    while True:
        try:
            yield [input("> ")]
        except EOFError:
            print()
            return


def in_chunks(lines: Iterable[str], sizes: Sequence[int] = SIZES) -> Iterator[list[str]]:
    """Yields lists of these sizes, repeating the last size; the last list may be shorter."""
    lines = iter(lines)
    for size in itertools.chain(sizes, itertools.repeat(sizes[-1])):
        if not (chunk := list(itertools.islice(lines, size))):
            return
        yield chunk


def one_line(text: str) -> str:
    """Replaces line breaks, which byte pieces can spell, so output stays aligned with input."""
    return text.replace("\r", " ").replace("\n", " ")
