"""Subtitles, SubRip (.srt) and WebVTT (.vtt): the texts of their cues.

Numbers, times and places of cues stay. The lines of a cue are one text, which is wrapped to as
many lines again; a line that begins with a dash or a speaker's name is a text of its own.
"""

import re
from collections.abc import Iterator, Sequence
from functools import partial
from html import escape
from typing import Any

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import entries as e
from tf_transformer.translation.files.placeholders import text_of

_LINE = re.compile(r"[^\r\n]*(?:\r{0,9}\n|\r|$)")
_TIMES = re.compile(r"\s*(?:\d+:)?\d+:\d+(?:[.,]\d+)?\s*-->\s*(?:\d+:)?\d+:\d+")
_BLOCK = re.compile(r"(?:NOTE|STYLE|REGION|WEBVTT)(?!\S)")  # of WebVTT, has no text to read
# A dash before each speaker, or the name in capitals; another begins another text.
_SPEAKER = re.compile(
    r"\s*(?:<[^<>]{0,99}>|\{\\[^{}]{0,99}\})?\s*(?:[-–—‐]\s*\w|[A-Z][A-Z .'’-]{1,30}:\s)"
)
_NAME = re.compile(r"[A-Z][A-Z .'’-]{1,30}:(?=\s)")


def read(content: bytes, languages: e.Languages) -> e.Document:
    """Reads a file of subtitles, in UTF-8, UTF-16 or Windows-1252; no language is named there.

    Raises UserError if no line has times.
    """
    text, encoding, bom = e.decoded(content, ["utf-8", "cp1252", "latin-1"])
    if not any(map(_TIMES.match, text.splitlines())):
        raise UserError("no line has times, such as 00:00:01,000 --> 00:00:02,500")
    entries, (cues, others) = [], _cues(text)
    left = [e.Left(at, text[at:end], "text without a time") for at, end in others]
    left = [each for each in left if any(map(str.isalpha, each.name))]
    for lines in cues:
        groups, texts = [*_groups(text, lines)], list[Any]()
        for group in groups:
            whole = " ".join(text[start:end].strip() for start, end in group)
            name = _NAME.match(whole)
            pieces: e.Pieces = [whole]
            if name:
                pieces = [e.Code(name[0], "single"), whole[name.end() :]]
            texts.append(text_of(pieces, "subtitle"))
        start, end = lines[0][0], lines[-1][1]
        edits = partial(_edits, text, groups)
        entries.append(e.Entry(start, text[start:end][:60], texts, edits))
    return e.Document(text, encoding, entries, left=left, bom=bom)


def _cues(text: str) -> tuple[list[list[e.Range]], list[e.Range]]:
    """Returns the lines of each cue that has text, without their ends, and lines in no cue."""
    cues, others = list[list[e.Range]](), list[e.Range]()
    lines, in_cue = list[e.Range](), False
    for match in _LINE.finditer(text):  # the last is empty
        line, is_time = match[0].rstrip("\r\n"), bool(_TIMES.match(match[0]))
        if line.strip(" \t") and not is_time:
            lines.append((match.start(), match.start() + len(line)))
            continue
        if is_time and lines and (not in_cue or text[slice(*lines[-1])].strip().isdigit()):
            lines.pop()  # the number or name of the next cue
        if lines and in_cue:
            cues.append(lines)
        elif lines and not _BLOCK.match(text, lines[0][0]):
            others += lines
        lines, in_cue = [], is_time
    return cues, others


def _groups(text: str, lines: Sequence[e.Range]) -> Iterator[list[e.Range]]:
    """Yields the lines that are one text: each speaker's."""
    group = [lines[0]]
    for start, end in lines[1:]:
        if _SPEAKER.match(text, start, end):
            yield group
            group = []
        group.append((start, end))
    yield group


def _edits(
    text: str, groups: Sequence[Sequence[e.Range]], found: Sequence[e.Pieces | None]
) -> Iterator[e.Edit]:
    """Yields what writes the texts of a cue into their lines."""
    is_vtt = text.startswith("WEBVTT")
    for group, pieces in zip(groups, found, strict=True):
        lines = [
            "".join(
                escape(piece, quote=False)
                if is_vtt and isinstance(piece, str)
                else e.plain([piece])
                for piece in line
            )
            for line in wrapped(pieces or (), len(group))
        ]
        line_end = text[group[0][1] : group[1][0]] if len(group) > 1 else ""
        yield e.Edit(group[0][0], group[-1][1], (line_end.join(lines),))


def wrapped(pieces: e.Pieces, number: int) -> list[list[str | e.Code]]:
    """Breaks a text into at most so many lines of similar length; never inside of a code."""
    words: list[list[str | e.Code]] = [[]]
    for piece in pieces:
        parts = [piece] if isinstance(piece, e.Code) else re.split(r"\s+", piece)
        words[-1].append(parts[0])
        words += [[part] for part in parts[1:]]
    sizes = [sum(len(part) for part in word if isinstance(part, str)) for word in words]
    total = sum(sizes) + len(sizes)

    def lines_of(width: int) -> list[int]:
        line, used, numbers = 0, 0, []
        for size in sizes:
            if used and used + size > width:
                line, used = line + 1, 0
            used += size + 1
            numbers.append(line)
        return numbers

    widths = range(total // number, total + 1)
    numbers = next(found for found in map(lines_of, widths) if found[-1] < number)
    lines: list[list[str | e.Code]] = [[] for _ in range(numbers[-1] + 1)]
    for line, word in zip(numbers, words, strict=True):
        lines[line] += [" ", *word] if lines[line] else word
    return [[piece for piece in line if piece != ""] for line in lines]
