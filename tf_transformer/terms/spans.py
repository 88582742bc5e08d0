"""Spans of a text, such as numbers, tags and addresses: their kinds, and both sides compared.

No TensorFlow.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import NamedTuple

# Every repetition is bounded, or begins where none of its characters stands before it: so the
# time is linear in the length of the text.

_UNITS = (
    "km/h|m/s|[kcmµnd]?m|[kmµ]?g|[mcd]?l|[kKMGT]i?B|[kMG]?Hz|[km]?V|[kMG]?Wh?|m?A|[hk]?Pa|k?J|k?N|"
    "[mµn]?s|min|h|m[²³]|°[CF]?|K|px|pt|dpi|bar|[%‰€$£¥]|EUR|USD|GBP|CHF|CAD"
)
_NUMBER = r"\d{1,40}(?:[.,]\d{1,40}){0,9}"
_PATTERNS = {
    "address": r"(?<![\w+.-])(?:[A-Za-z][A-Za-z0-9+.-]{1,15}://|www\.)[^\s<>\"]*[\w/#=&%~+-]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}",
    "placeholder": r"\{\{[^{}\n]{0,80}\}\}|\$?\{[^{}\n]{0,80}\}"
    r"|%\(\w{1,60}\)[-+0# ]?\d{0,3}[a-zA-Z]"
    r"|(?<![\w%])%(?:\d\$)?[-+0#]{0,4}\d{0,3}(?:\.\d{1,3})?(?:hh?|ll?|z)?[diouxXeEfgGcrs@](?!\w)"
    r"|(?<![\w%])%(?:L?\d{1,2}|n)(?![\w%])|&(?:[A-Za-z]\w{1,30}|\#\w{1,8});",
    "tag": r"</?[A-Za-z][\w:.-]{0,60}(?:\s[^<>]{0,2000})?/?>|<!--[^<>]{0,2000}-->",
    "code": r"`[^`\n]{1,300}`",
    "@name": r"(?<![\w@.])@[A-Za-z_]\w{0,60}",
    "number": r"(?<![\w.,])(?:\d{1,4}(?:[-/:]\d{1,4}){1,3}(?!\w)"
    rf"|[€$£¥]\s?{_NUMBER}|[-+±]?{_NUMBER}\s?(?:{_UNITS})(?!\w)"
    r"|\d{4,40}(?!\w|[.,]\d)|\d{1,4}(?:\.\d{1,5}){2,4}(?!\w))",
}
KINDS = tuple(_PATTERNS)
CHANGES = ("missing", "doubled", "new")  # of a span in a translation
DEFAULT_PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS.items())
_ANY_NUMBER = re.compile(
    r"(?<![\d.,])\d{1,3}(?:[ \u00a0\u202f'’]\d{3}){1,6}(?!\d)|\d{1,40}(?:[.,:]\d{1,40}){0,9}"
)
TOKEN = re.compile(r"\w+|[^\w\s]")


class Span(NamedTuple):
    """A span of a text, and what stands for it in the translation."""

    start: int
    end: int
    kind: str
    target: str


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
    """Returns which spans a translation lacks, doubles or adds: "number missing: 4711".

    Numbers are compared by their digits, so 9.99 equals 9,99 and 1,000 equals 1 000. Those of
    one digit are not compared, because they may be spelled out.
    """
    (before, shown), (after, others) = map(_compared, (source, translation))
    return [
        f"{key[0]} {CHANGES[0 if after[key] < count else 1 if count else 2]}: "
        f"{(shown | others)[key]}"
        for key in before | after
        if (count := before[key]) != after[key]
    ]


def _compared(text: str) -> tuple[Counter[tuple[str, str]], dict[tuple[str, str], str]]:
    """Counts the spans of a text by kind and value; and how each is written."""
    spans, _ = leftmost(spans_of(text, DEFAULT_PATTERNS[:-1]))
    ends = [0, *(span.end for span in spans)]
    starts = [*(span.start for span in spans), len(text)]
    rest = "\n".join(text[end:start] for end, start in zip(ends, starts, strict=True))
    written = [((span.kind, span.target), span.target) for span in spans]
    for number in _ANY_NUMBER.findall(rest):
        digits = re.sub(r"\D", "", number).lstrip("0")
        if len(digits) > 1:
            written.append((("number", digits), number))
    return Counter(key for key, _ in written), dict(written)
