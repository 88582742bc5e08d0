"""Plain parallel text: one sentence per line, one file per language, optionally gzipped."""

import codecs
import glob
import gzip
import itertools
import os
import unicodedata
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from tf_transformer.errors import UserError

SideName = Literal["source", "target"]
SIDES: tuple[SideName, SideName] = ("source", "target")
_INVISIBLE = ("Zs", "Zl", "Zp", "Cc", "Cf")
BLOCK_BYTES = 1 << 16  # capacity of a pipe on Linux


def resolve_prefix(prefix: str | Path, language: str) -> Path:
    """Finds PREFIX.language, or else PREFIX.language.gz.

    Raises:
        UserError: if neither exists; the message names the languages that do.
    """
    plain, zipped = Path(f"{prefix}.{language}"), Path(f"{prefix}.{language}.gz")
    for path in (plain, zipped):
        if path.is_file():
            return path
    if Path(prefix).is_file():
        hint = f"{prefix} is a file: give its name without the language."
    elif languages := _languages(Path(prefix)):
        hint = f"Languages found for {prefix}: {', '.join(languages)}."
    else:
        hint = f"No file begins with {prefix}."
    raise UserError(f"There is no {plain} and no {zipped}. {hint}")


def _languages(prefix: Path) -> list[str]:
    start = f"{prefix.name}."
    files = filter(Path.is_file, prefix.parent.glob(f"{glob.escape(start)}*"))
    return sorted({file.name.removeprefix(start).removesuffix(".gz") for file in files})


def is_visible(text: str) -> bool:
    """Tells whether text has a character other than spaces, control and format characters."""
    return any(unicodedata.category(char) not in _INVISIBLE for char in text)


def read_lines(path: Path | int) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, plain or .gz, without line ends.

    `path` may be an open file descriptor, such as 0 for stdin. Only "\n" and "\r\n" end a
    line: the other line breaks of `str.splitlines` and text mode would misalign all later
    pairs. A byte order mark at the start is dropped.

    Raises:
        UserError: if the file cannot be read, is a damaged gzip file or is not UTF-8.
    """
    for number, line in enumerate(_read_raw(path), start=1):
        yield _decoded(path, number, line)


def arriving_lines(descriptor: int) -> Iterator[list[str]]:
    """Yields lines of a pipe as they arrive: waits for one, then takes all that came with it.

    Args:
        descriptor: an open file descriptor, such as 0 for stdin.

    Raises:
        UserError: as `read_lines` does.
    """
    number = 0
    for lines in _read_arriving(descriptor):
        yield [_decoded(descriptor, number + i, line) for i, line in enumerate(lines, start=1)]
        number += len(lines)


def _read_arriving(descriptor: int) -> Iterator[list[bytes]]:
    parts = []  # of a line that is still incomplete
    with read_errors(descriptor):
        while block := os.read(descriptor, BLOCK_BYTES):
            parts.append(block)
            if b"\n" in block:
                *lines, rest = b"".join(parts).split(b"\n")
                parts = [rest] if rest else []
                yield lines
    if parts:
        yield [b"".join(parts)]


def _decoded(path: Path | int, number: int, line: bytes) -> str:
    """Decodes line `number`, counted from 1, and drops its line end."""
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    line = line.removesuffix(b"\n").removesuffix(b"\r")
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{_name(path)}:{number}: text must be UTF-8. Received: byte "
            f"0x{line[error.start]:02x} at byte {error.start + 1} of the line. "
            "Convert the file, for example with iconv."
        ) from None


def _read_raw(path: Path | int) -> Iterator[bytes]:
    with (
        read_errors(path),
        gzip.open(path)
        if isinstance(path, Path) and path.suffix == ".gz"
        else open(path, "rb", closefd=path != 0) as file,
    ):
        yield from file


@contextmanager
def read_errors(path: Path | int) -> Iterator[None]:
    """Turns errors of reading a file, plain or .gz, into a UserError."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is not a complete gzip file: {error}.") from None
    except OSError as error:
        raise UserError(f"{_name(path)} cannot be read: {error.strerror or error}.") from None


def _name(path: Path | int) -> str:
    return "stdin" if path == 0 else str(path)


def read_pairs(source_file: Path, target_file: Path) -> Iterator[tuple[str, str]]:
    """Yields pairs of line i of a source file and line i of its target file.

    Raises:
        UserError: if the files differ in their number of lines, or as `read_lines` does.
    """
    sources, targets = read_lines(source_file), read_lines(target_file)
    for number, (source, target) in enumerate(itertools.zip_longest(sources, targets)):
        if source is None or target is None:
            source_count = number + sum(1 for _ in sources) + (source is not None)
            target_count = number + sum(1 for _ in targets) + (target is not None)
            raise UserError(
                "Parallel files must have the same number of lines. Received: "
                f"{source_file} with {source_count:,} and {target_file} with {target_count:,}."
            )
        yield source, target


def count_lines(path: Path) -> int:
    """Counts the lines of a file, plain or .gz; UserError if it cannot be read."""
    return sum(1 for _ in _read_raw(path))
