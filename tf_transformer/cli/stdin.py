"""The lines of stdin in chunks, which commands answer one after the other."""

import argparse
import itertools
from collections.abc import Iterable, Iterator, Sequence

from tf_transformer.data.corpus import arriving_lines, read_lines

# Sentences sorted by length together. Few at first, so that answers begin soon; then as many as
# the last says, and memory does not grow beyond.
SIZES = (100, 1_000, 10_000)


def add_line_buffered_option(parser: argparse.ArgumentParser) -> None:
    """--line-buffered."""
    parser.add_argument(
        "--line-buffered",
        action="store_true",
        help="answer the lines that have arrived on stdin without waiting for more, for use as "
        "a coprocess; slower where many lines are there at once",
    )


def stdin_chunks(line_buffered: bool, sizes: Sequence[int] = SIZES) -> Iterator[list[str]]:
    """The lines of stdin: those that have arrived, or lists of these sizes; see `in_chunks`."""
    return arriving_lines(0) if line_buffered else in_chunks(read_lines(0), sizes)


def in_chunks(lines: Iterable[str], sizes: Sequence[int] = SIZES) -> Iterator[list[str]]:
    """Lists of at most these sizes, the last of which holds for all that follow."""
    lines = iter(lines)
    for size in itertools.chain(sizes, itertools.repeat(sizes[-1])):
        if not (chunk := list(itertools.islice(lines, size))):
            return
        yield chunk
