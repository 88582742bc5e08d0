"""Lines of text files for the experiments, and short quotations in messages."""

import gzip
import sys
from collections.abc import Iterator
from pathlib import Path

from tf_transformer import UserError


def read_lines(path: Path | str) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, plain or .gz, or of stdin, "-", without line ends.

    Only "\n" and "\r\n" end a line. Raises UserError if it cannot be read or is not UTF-8.
    """
    try:
        if str(path) == "-":
            yield from map(_decoded, sys.stdin.buffer)
            return
        with gzip.open(path) if Path(path).suffix == ".gz" else Path(path).open("rb") as file:
            yield from map(_decoded, file)
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read as text in UTF-8: {error}.") from None


def _decoded(line: bytes) -> str:
    return line.decode("utf-8").removesuffix("\n").removesuffix("\r")


def shortened(text: str, most: int = 80) -> str:
    """Returns the text; if it is longer than `most` characters, its beginning and "..."."""
    return text if len(text) <= most else f"{text[:most]}..."
