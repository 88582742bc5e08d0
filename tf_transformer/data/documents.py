r"""Documents: their sentences, and all that stands around them and is kept as it is.

A document is taken apart into parts, whose texts joined are the document again:

    "- Hi there. You?\n\n"   ->   "- "  [Hi there.]  " "  [You?]  "\n"  "\n"

Only the parts in brackets are translated. Every line is taken by itself. The library that finds
sentences sees a long line in pieces: its time grows with the square of what it sees, and
meanwhile no other thread runs.
"""

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import sentencex

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.data.text import SIDES

# Before a sentence: space, and marks of lists, headings and quotations.
_MARKS = re.compile(
    r"\s*(?:(?:[-*+•‣◦·–—]|\#{1,6}|\d{1,3}[.)]|[A-Za-z]\)|\[[ xX]\])(?:\s+|$)|>+\s*)*"
)
# What closes an emphasis, and single tags.
_CLOSE = re.compile(
    r"(?:(?<!\s)(?:[*_~]|</[A-Za-z0-9]+>|<[A-Za-z][^<>]{0,99}/>|<[bh]r>)+(?=\s|$))?"
)
_ROW, _TABS = re.compile(r"([|\t])"), re.compile(r"(\t)")  # what separates cells
_MARK = re.compile(r"[^\w\s]")  # without one, a line is one sentence
_FENCE = re.compile(r"\s*(`{3,}|~{3,})")
_LONE_ADDRESS = re.compile(
    r"<?(?:(?:[a-z][a-z0-9+.-]*://|www\.|mailto:)\S+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+[>.,;]*)",
    re.ASCII | re.IGNORECASE,
)
# Of what is no text. Every repetition is bounded, or begins where none of its characters stands
# before it: so the time is linear in the length of the text.
_FORMAT = r"%(?:\d\$)?[-+0#]{0,4}\d{0,3}(?:\.\d{1,3})?(?:hh?|ll?|z)?[diouxXeEfgGcrs@]"
ADDRESS = (
    r"(?<![\w+.-])(?:[A-Za-z][A-Za-z0-9+.-]{1,15}://|www\.)[^\s<>\"]*[\w/#=&%~+-]"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}"
)
PLACEHOLDER = (
    r"<%(?:[^%\n]|%(?!>)){0,200}%>|\{\{[^{}\n]{0,80}\}\}|[$%#]?\{[^{}\n]{0,80}\}"
    r"|%\(\w{1,60}\)[-+0# ]?\d{0,3}[a-zA-Z]"
    rf"|(?<![\w%]){_FORMAT}(?:x?{_FORMAT}){{0,8}}(?:[smhx]|ms|px|[kKMG]i?B)?(?!\w)|%%"
    r"|(?<![\w%])%(?:L?\d{1,2}%?|n)(?![\w%])|(?<![\w$])\$[A-Za-z_]\w{0,60}"
    r"|(?<![^\s(\"'>]):(?:[a-z_]\w|[A-Z][a-z])\w{0,40}(?![\w:])"  # neither :D nor 2:30
    r"|&(?:[A-Za-z]\w{1,30}|\#\w{1,8});"
)
TAG = r"</?[A-Za-z][\w:.-]{0,60}(?:\s[^<>]{0,2000})?/?>|<!--[^<>]{0,2000}-->"
_NO_TEXT = re.compile(f"{ADDRESS}|{PLACEHOLDER}|{TAG}")
NO_JOIN = "`context` above 1, but the model was trained without data.join: it may drop text"
# By language: what ends no sentence before a full stop where the library cuts. Ordinals only
# after an article, since a sentence may end with a number; initials only without space after.
_GOES_ON = {
    "ar": "و?[دأ]",
    "de": r"(?i:[ai]m|zu[mr]|vom|beim|ins|das|de[mnrs]|die|(?:dies|ihr|sein)e[mnrs]?)\s\d\d?",
    "en": "Ms",
    "es": "D|Dña",
    "fr": r"M|Mme|Mlle|Dr|Pr|Prof|Mgr|[A-Z](?=\.$)|c\.-à-d",
    "hi": "डॉ|प्रो",
    "pl": r"(?i:dr|mgr|inż|prof|ks|św|np|tj)",
}
# What ends none before a number, a bracket or a small letter.
_GOES_ON_SMALL = {
    "en": r"(?i:eqs?|figs?|vol|ch|approx)",
    "fr": r"(?:janv|févr|avr|juil|sept|oct|nov|déc)",
    "pl": r"m\.in",
    "ru": r"т\.\s?[екдп]|(?i:рис|стр|табл)",
    "tr": r"\d\d?",
}
# A cut before a closing mark, and one behind it, or behind a full stop, where a word goes on.
_CLOSING = r"\])}’”»』」）】》〉〕］｝"
_TORN = re.compile(
    rf"(?<!\s)(?=[{_CLOSING}])|(?<=[\"'{_CLOSING}])(?=[\w、，。,.:;：；])|(?<=\.)(?=[-‐‑–])"
)
_UNNAMED = ", of a model trained without the names of its languages"
WIDE = "\u2e80"  # the first of the characters of East Asia, which put no space after a mark


# Characters of a line that the library sees at once; how many of them it sees again with those
# that follow, since a quotation may go on; and how many before those, if there was no cut.
_SEEN, _AHEAD, _BEHIND = 2_000, 500, 100


class Passage(NamedTuple):
    """A piece of a document: a sentence to translate, or what is kept."""

    text: str
    is_sentence: bool


def take_apart(text: str, language: str, context: int = 1) -> list[Passage]:
    """Returns the parts of a document in a language, such as "de"; none of them is empty.

    Unknown languages have the rules of English; UserError if it is no code of two or three
    letters. A part has up to `context` sentences of a line.
    """
    code = re.match("[a-z]{2,3}(?![a-z])", language.lower())
    if not code:
        raise UserError(
            "`language` must be the code of the source language, such as de. Received: "
            f"{quoted(language)}{_UNNAMED * (language in SIDES)}."
        )
    lines = text.splitlines(keepends=True)
    parts: list[Passage] = []
    for line, is_code in zip(lines, _code(lines), strict=True):
        kept = is_code or line.isspace()
        parts += [Passage(line, False)] if kept else _line(line, code[0], context)
    return [part for part in parts if part.text]


def put_together(
    parts: Iterable[Passage], translations: Iterable[str]
) -> Iterator[tuple[Passage, str]]:
    """Yields the parts with what stands for them: a translation, or their own text.

    Takes as many of the translations as there are sentences, and makes each a line. Between
    sentences without space, as in Chinese, a translation begins with one where it needs one.
    """
    found, before, shown = iter(translations), Passage("", False), ""
    for part in parts:
        follows = before.is_sentence and part.is_sentence
        space = " " * (follows and _is_wide(before.text) > _is_wide(shown))
        shown = " ".join(next(found).splitlines()).strip() if part.is_sentence else part.text
        shown = space + shown
        yield part, shown
        before = part


def _is_wide(text: str) -> bool:
    """Tells whether a sentence ends with a character of East Asia, or one before a quote."""
    return max(text[-2:], default="") >= WIDE


def _code(lines: list[str]) -> Iterator[bool]:
    """Tells of each line whether it is code between two fences, or a fence."""
    last = {line.strip(): number for number, line in enumerate(lines)}
    end = ""  # the fence that ends the block
    for number, line in enumerate(lines):
        fence = _FENCE.match(line)
        yield bool(end or fence)
        if end:
            end = "" if line.strip() == end else end
        elif fence and last.get(fence[1], 0) > number:
            end = fence[1]


def _line(line: str, language: str, context: int) -> Iterator[Passage]:
    rest = _MARKS.sub("", line, count=1)
    if len(rest) < len(line):
        yield Passage(line.removesuffix(rest), False)
    for cell in (_ROW if rest.startswith("|") else _TABS).split(rest):
        yield from _cell(cell, language, context)


def _cell(cell: str, language: str, context: int) -> Iterator[Passage]:
    """Yields the sentences of a line, or of a cell of a table, with the space around them."""
    if not _is_text(cell.strip()):
        yield Passage(cell, False)
        return
    cuts = _cuts(cell, language) if _MARK.search(cell) else ()
    found = (_CLOSE.match(cell, cut) for cut in cuts if not _goes_on(cell, cut, language))
    ends = [0, *(match.end() for match in found if match), len(cell)]
    for first in range(0, len(ends) - 1, context):
        piece = cell[ends[first] : ends[min(first + context, len(ends) - 1)]]
        sentence = piece.strip()
        start = piece.index(sentence)
        yield Passage(piece[:start], False)
        yield Passage(sentence, _is_text(sentence))
        yield Passage(piece[start + len(sentence) :], False)


def _cuts(text: str, language: str) -> Iterator[int]:
    """Yields where the library cuts a text, of which it sees `_SEEN` characters at a time.

    Each piece begins at a cut of the one before, unless that is too far back.
    """
    start = end = 0
    while end < len(text):
        piece, begin, end = text[start : start + _SEEN], end, start + _SEEN - _AHEAD
        if start + _SEEN >= len(text):
            end = len(text)
        elif piece.count('"') % 2:  # where one has no other, the library doubts them all
            piece = piece[: max(piece.rindex('"'), _SEEN - _AHEAD)]
        found = (start + cut for cut in _cuts_seen(piece, language))
        cuts = [cut for cut in found if begin < cut <= end]
        yield from cuts
        start = cuts[-1] if cuts and cuts[-1] > end - _SEEN // 2 else end - _BEHIND


def _cuts_seen(text: str, language: str) -> Iterable[int]:
    """Returns where the library cuts a text that it sees as a whole."""
    # The library fails at spaces such as U+00A0 and at lone surrogates.
    plain = re.sub(r"\s", " ", text).encode("utf-8", "replace").decode()
    try:
        sizes = [len(sentence) for sentence in sentencex.segment(language, plain)]
    except BaseException as error:  # a panic of Rust is no Exception
        if type(error).__name__ != "PanicException":
            raise
        sizes = []  # the text is one sentence, so that nothing is lost
    return itertools.accumulate(sizes[:-1]) if sum(sizes) == len(text) else ()


def _goes_on(text: str, cut: int, language: str) -> bool:
    """Tells whether a sentence goes on where the library cuts."""
    if _TORN.match(text, cut):
        return True
    after = text[cut : cut + 1]
    small = after.islower() or after.isdigit() or after == "("
    before = [_GOES_ON.get(language), _GOES_ON_SMALL.get(language) if small else None]
    words = "|".join(filter(None, before)) or "(?!)"
    return bool(re.compile(rf"\b(?:{words})\.\s*$").search(text, max(cut - 30, 0), cut))


def _is_text(text: str) -> bool:
    """Tells whether there is a letter to translate, outside of addresses, tags and the like."""
    return any(map(str.isalpha, _NO_TEXT.sub("", text))) and not _LONE_ADDRESS.fullmatch(text)
