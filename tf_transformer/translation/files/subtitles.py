"""Subtitles, SubRip (.srt) and WebVTT (.vtt): the texts of their cues.

Numbers, times and places of cues stay. The lines of a cue are one text, which is wrapped to as
many lines again; a line that begins with a dash or a speaker's name is a text of its own.
"""

import itertools
import re
from collections.abc import Iterator, Sequence
from html import escape

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files.entries import (
    Code,
    Document,
    Edit,
    Entry,
    Languages,
    Left,
    Pieces,
)
from tf_transformer.translation.files.placeholders import text_of

_LINE = re.compile(r"[^\r\n]*(?:\r*\n|\r+|$)")
_TIMES = re.compile(r"\s*(?:\d+:)?\d+:\d+[.,]\d+\s*-->\s*(?:\d+:)?\d+:\d+[.,]\d+")
# A dash before each speaker, or the name in capitals; another begins another text.
_SPEAKER = re.compile(
    r"\s*(?:<[^<>]{0,99}>|\{\\[^{}]{0,99}\})?\s*(?:[-–—‐]\s*\w|[A-Z][A-Z .'’-]{1,30}:\s)"
)
_NAME = re.compile(r"[A-Z][A-Z .'’-]{1,30}:(?=\s)")


def read(content: bytes, languages: Languages) -> Document:
    """Reads a file of subtitles, in UTF-8, UTF-16 or Windows-1252; no language is named there.

    Raises UserError if no line has times.
    """
    bom, encoding = b"", "utf-8"
    for mark, name in (
        (b"\xef\xbb\xbf", "utf-8"),
        (b"\xff\xfe", "utf-16-le"),
        (b"\xfe\xff", "utf-16-be"),
    ):
        if content.startswith(mark):
            bom, encoding = mark, name
    try:
        text = content[len(bom) :].decode(encoding)
    except UnicodeDecodeError:
        encoding = "cp1252"
        text = content.decode(encoding, "surrogateescape")
    is_vtt = text.startswith("WEBVTT")
    entries, left = [], []
    for lines in _cues(text):
        start, end = lines[0][0], lines[-1][1]
        name = text[start:end][:60]
        texts, edits = [], []
        for group in _groups(text, lines):
            whole = " ".join(text[first:last].strip() for first, last in group)
            found = text_of(_with_name(whole), "subtitle")
            ends = text[group[0][1] : group[1][0]] if len(group) > 1 else ""
            if isinstance(found, str):
                left.append(Left(start, name, found))
                break
            texts.append(found)
            edits.append((group[0][0], group[-1][1], len(group), ends))
        else:
            entries.append(Entry(start, name, texts, _Writer(edits, is_vtt)))
    if not any(map(_TIMES.match, text.splitlines())):
        raise UserError("no line has times, such as 00:00:01,000 --> 00:00:02,500")
    return Document(text, encoding, entries, left=left, bom=bom)


def _cues(text: str) -> Iterator[list[tuple[int, int]]]:
    """Yields the ranges of the lines of each cue that has text, without their ends."""
    lines: list[tuple[int, int]] = []
    in_cue = False
    for match in _LINE.finditer(text):
        start, end = match.start(), match.start() + len(match[0].rstrip("\r\n"))
        is_time = bool(_TIMES.match(match[0]))
        if in_cue and (is_time or start == end):
            if lines:
                yield lines
            lines = []
            in_cue = False
        elif in_cue:
            lines.append((start, end))
        in_cue = in_cue or is_time
    if lines:
        yield lines


def _groups(text: str, lines: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Yields the lines that are one text: each speaker's."""
    group = [lines[0]]
    for start, end in lines[1:]:
        if _SPEAKER.match(text, start, end):
            yield group
            group = []
        group.append((start, end))
    yield group


def _with_name(text: str) -> Pieces:
    """Returns a text with a speaker's name at its beginning as a code."""
    name = _NAME.match(text)
    return [Code(name[0], "single"), text[name.end() :]] if name else [text]


class _Writer:
    """Writes the texts of a cue into their ranges, each with its number of lines."""

    def __init__(self, ranges: Sequence[tuple[int, int, int, str]], is_vtt: bool) -> None:
        self._ranges, self._is_vtt = ranges, is_vtt

    def __call__(self, found: Sequence[Pieces | None]) -> Iterator[Edit]:
        for (start, end, number, ends), pieces in zip(self._ranges, found, strict=True):
            lines = [*wrapped(pieces or (), number)]
            between = [ends] * (len(lines) - 1) + [""]
            whole: list[str] = []
            for line, line_end in zip(lines, between, strict=True):
                for piece in line:
                    if isinstance(piece, Code):
                        whole.append(piece.written)
                    else:
                        whole.append(escape(piece, quote=False) if self._is_vtt else piece)
                whole.append(line_end)
            yield Edit(start, end, tuple(whole))


def wrapped(pieces: Pieces, number: int) -> Iterator[list[str | Code]]:
    """Breaks a text into at most so many lines of similar length; never inside of a code."""
    words: list[list[str | Code]] = [[]]
    for piece in pieces:
        parts = [piece] if isinstance(piece, Code) else re.split(r"\s+", piece)
        words[-1].append(parts[0])
        words += [[part] for part in parts[1:]]
    sizes = [sum(len(part) for part in word if isinstance(part, str)) for word in words]
    total = sum(sizes) + len(sizes)

    def lines_of(width: int) -> list[int]:
        line, used, numbers = 0, -1, []  # without a space before the first word
        for size in sizes:
            if used >= 0 and used + 1 + size > width:
                line, used = line + 1, -1
            used += 1 + size
            numbers.append(line)
        return numbers

    widths = range(total // number, total + 1)
    lines = next((found for found in map(lines_of, widths) if found[-1] < number), [0])
    for _, group in itertools.groupby(zip(lines, words, strict=False), lambda pair: pair[0]):
        line: list[str | Code] = []
        for _, word in group:
            line += [" ", *word] if line else word
        yield [piece for piece in line if piece != ""]
