"""Spans of a text, such as numbers, tags and addresses: their kinds, and both sides compared.

No TensorFlow.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tf_transformer.data.documents import ADDRESS, PLACEHOLDER, TAG

_UNITS = (
    "km/h|m/s|[kcmµnd]?m|[kmµ]?g|[mcd]?l|[kKMGT]i?B|[kMG]?Hz|[km]?V|[kMG]?Wh?|m?A|[hk]?Pa|k?J|k?N|"
    "[mµn]?s|min|h|m[²³]|°[CF]?|K|px|pt|dpi|bar|%(?!%)|[‰€$£¥]|EUR|USD|GBP|CHF|CAD"
)
_NUMBER = r"\d{1,40}(?:[.,]\d{1,40}){0,9}"
_PATTERNS = {
    "address": ADDRESS,
    "placeholder": PLACEHOLDER,
    "tag": TAG,
    "code": r"`[^`\n]{1,300}`",
    "@name": r"(?<![\w@.])@[A-Za-z_]\w{0,60}",
    "number": r"(?<![\w.,])(?:\d{1,4}(?:[-/:]\d{1,4}){1,3}(?!\w)"
    rf"|[€$£¥]\s?{_NUMBER}|[-+±]?{_NUMBER}\s?(?:{_UNITS})(?!\w)"
    r"|\d{4,40}(?!\w|[.,]\d)|\d{1,4}(?:\.\d{1,5}){2,4}(?!\w))",
}
KINDS = tuple(_PATTERNS)
_CHANGES = ("missing", "doubled", "new")  # of a span in a translation
_OTHERS = ("placeholder moved", "tag moved", "term doubled")
FAULTS = (*(f"{kind} {change}" for kind in KINDS for change in _CHANGES), *_OTHERS)
DEFAULT_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS.items())
ANY_NUMBER = re.compile(
    r"(?<![\d.,])\d{1,3}(?:[ \u00a0\u202f'’]\d{3}){1,6}(?!\d)|\d{1,40}(?:[.,:]\d{1,40}){0,9}"
)
ALL_NUMBERS = re.compile(rf"(?<![\w.,])(?:{ANY_NUMBER.pattern})(?!\w)")  # of any size
SLOT = re.compile("<[1-9]>")
MARKS = ".!?…:;。！？।؟"  # a slot for a tag does not stand apart from them
# Whose place among the others tells what stands for it.
UNNAMED = re.compile(r"%[-+0# ]*\d{0,3}(?:\.\d{1,3})?[a-zA-Z@](?<![nL])|\{(?:[:!][^{}]*)?\}")


class Span(NamedTuple):
    """A span of a text, and what stands for it in the translation, or `others` of its forms."""

    start: int
    end: int
    kind: str
    target: str
    others: tuple[str, ...] = ()

    @property
    def forms(self) -> tuple[str, ...]:
        """The texts that may stand for it."""
        return self.target, *self.others


def spans_of(text: str, patterns: Iterable[tuple[str, re.Pattern]]) -> Iterator[Span]:
    """Yields what the patterns find, each in the order of the text; they may overlap."""
    for kind, pattern in patterns:
        for match in pattern.finditer(text):
            if match[0].strip():
                yield Span(*match.span(), kind, match[0])


def leftmost(spans: Iterable[Span]) -> tuple[list[Span], int]:
    """Returns spans that do not overlap: from the left, the longest that begins first.

    Also returns how many terms are left out although they go on behind the one before.
    """
    chosen: list[Span] = []
    crossing = 0
    for span in sorted(spans, key=lambda span: (span.start, -span.end)):
        if not chosen or span.start >= chosen[-1].end:
            chosen.append(span)
        elif span.kind == "term" and span.end > chosen[-1].end:
            crossing += 1
    return chosen, crossing


def differences(source: str, translation: str) -> list[str]:
    """Returns which spans a translation lacks, doubles, adds or moves: "number missing: 4711".

    Moved are placeholders without number and name, and tags that close before they open.
    Numbers are compared by their digits, so 9.99 equals 9,99 and 1,000 equals 1 000. Those of
    one digit are not compared, because they may be spelled out.
    """
    sides = [_compared(text) for text in (source, translation)]
    before, after = (Counter(key for key, _ in side) for side in sides)
    shown = dict([*sides[0], *sides[1]])
    found = [
        f"{key[0]} {_CHANGES[0 if after[key] < count else 1 if count else 2]}: {shown[key]}"
        for key in before | after
        if (count := before[key]) != after[key]
    ]
    unnamed, tags = (
        [[text for _, text in side if pattern.match(text)] for side in sides]
        for pattern in (UNNAMED, DEFAULT_PATTERNS[2][1])
    )
    if unnamed[0] != unnamed[1] and sorted(unnamed[0]) == sorted(unnamed[1]):
        found.append(f"placeholder moved: {unnamed[1][0]}")
    if sorted(tags[0]) == sorted(tags[1]) and nested(tags[0]) and not nested(tags[1]):
        found.append(f"tag moved: {tags[1][0]}")
    return found


def _compared(text: str) -> list[tuple[tuple[str, str], str]]:
    """Returns kind and value of each span of a text, and how it is written."""
    spans, _ = leftmost(spans_of(text, DEFAULT_PATTERNS[:-1]))
    ends = [0, *(span.end for span in spans)]
    starts = [*(span.start for span in spans), len(text)]
    rest = "\n".join(text[end:start] for end, start in zip(ends, starts, strict=True))
    written = [((span.kind, span.target), span.target) for span in spans]
    for number in ANY_NUMBER.findall(rest):
        digits = re.sub(r"\D", "", number).lstrip("0")
        if len(digits) > 1:
            written.append((("number", digits), number))
    return written


def between_tags(text: str, spans: Sequence[Span]) -> tuple[int, int]:
    """Returns where a text begins and ends without a tag at its start, at its end, or both.

    A tag whose partner is inside belongs to the text, and so do all if nothing else is left.
    """
    tags = [span.target if span.kind == "tag" else "" for span in spans] or [""]
    closed, last, start, end = partners(tags), len(tags) - 1, 0, len(text)
    begins = bool(tags[0]) and not text[: spans[0].start].strip()
    ends = bool(tags[last]) and not text[spans[last].end :].strip()
    around = begins and ends and closed.get(0) == last
    if begins and (around or 0 not in closed):
        start = spans[0].end
    if ends and start <= spans[last].start and (around or last not in closed):
        end = spans[last].start
    inner, rest = text[start:end], [span for span in spans if start <= span.start < end]
    if len(rest) == len(spans) or not (rest or any(map(str.isalpha, inner))):
        return 0, len(text)
    return end - len(inner.lstrip()), start + len(inner.rstrip())


def _names(tags: Sequence[str]) -> list[str]:
    return [re.sub(r"[\s/>].*", "", tag.lstrip("</"), flags=re.DOTALL) for tag in tags]


def partners(tags: Sequence[str]) -> dict[int, int]:
    """Returns of each tag that is closed, or closes one, the number of the other."""
    found: dict[int, int] = {}
    opened: dict[str, list[int]] = {}
    for number, (name, tag) in enumerate(zip(_names(tags), tags, strict=True)):
        if not tag.startswith("</"):
            opened.setdefault(name, []).append(number)
        elif opened.get(name):
            found |= {number: opened[name][-1], opened[name].pop(): number}
    return found


def nested(tags: Sequence[str]) -> bool:
    """Tells whether each closing tag closes the last one that is open; a tag may be single."""
    names = _names(tags)
    closing = {name for name, tag in zip(names, tags, strict=True) if tag.startswith("</")}
    opening = {name for name, tag in zip(names, tags, strict=True) if tag[1] != "/"}
    opened: list[str] = []
    for name, tag in zip(names, tags, strict=True):
        if tag.startswith("</"):
            if name in opening and (not opened or opened.pop() != name):
                return False
        elif name in closing and not tag.endswith("/>"):
            opened.append(name)
    return not opened


def stands_apart(character: str, others: str = "") -> bool:
    """Tells whether a slot for a tag stands apart from this neighbour, as in training."""
    return character.isalnum() or character in tuple("<>{}%&" + others)
