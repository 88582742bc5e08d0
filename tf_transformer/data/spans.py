"""Spans that a translation keeps: found, compared on both sides, and replaced by slots.

A slot is a piece of the vocabulary, `<1>` to `<9>`, that stands for a span:

    "Write to a@b.de, <b>now</b>!"  ->  "Write to <1>, <2> now <3>!"   a@b.de  <b>  </b>

A model trained with `data.slots` translates the text around slots, and its search uses each
slot of the source once; then the spans stand there again. No TensorFlow.
"""

import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.config.settings import require
from tf_transformer.data.text import read_lines

logger = logging.getLogger(__name__)

SLOTS = tuple(f"<{number}>" for number in range(1, 10))
_SLOT = re.compile("<[1-9]>")

# --- Kinds of spans ----------------------------------------------------------------------
#
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
_DEFAULT = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS.items())
_ANY_NUMBER = re.compile(
    r"(?<![\d.,])\d{1,3}(?:[ \u00a0\u202f'’]\d{3}){1,6}(?!\d)|\d{1,40}(?:[.,:]\d{1,40}){0,9}"
)
_TOKEN = re.compile(r"\w+|[^\w\s]")


class Match(NamedTuple):
    """A span of a text, and what stands for it in the translation."""

    start: int
    end: int
    kind: str
    target: str


# --- Both sides compared -----------------------------------------------------------------


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
    matches, _ = _leftmost(_matches(text, _DEFAULT[:-1]))
    ends = [0, *(match.end for match in matches)]
    starts = [*(match.start for match in matches), len(text)]
    rest = "\n".join(text[end:start] for end, start in zip(ends, starts, strict=True))
    found = [(match.kind, match.target, match.target) for match in matches]
    for number in _ANY_NUMBER.findall(rest):
        digits = re.sub(r"\D", "", number).lstrip("0")
        if len(digits) > 1:
            found.append(("number", digits, number))
    return Counter(each[:2] for each in found), {each[:2]: each[2] for each in found}


# --- Spans of a text ---------------------------------------------------------------------


def _matches(text: str, patterns: Iterable[tuple[str, re.Pattern]]) -> Iterator[Match]:
    for kind, pattern in patterns:
        for found in pattern.finditer(text):
            if found[0].strip():
                yield Match(*found.span(), kind, found[0])


def _leftmost(matches: Iterable[Match]) -> tuple[list[Match], int]:
    """Returns matches that do not overlap: from the left, the longest that begins first.

    Also returns how many terms are left out although they go on behind the one before.
    """
    chosen: list[Match] = []
    crossing = 0
    for match in sorted(matches, key=lambda match: (match.start, -match.end)):
        if not chosen or match.start >= chosen[-1].end:
            chosen.append(match)
        elif match.kind == "term" and match.end > chosen[-1].end:
            crossing += 1
    return chosen, crossing


class Glossary:
    """Terms and their translations; a term without capitals matches in any case.

    The longest term that begins at a word wins; it begins and ends at the borders of words.

    Raises:
        UserError: for a term that is empty, or has two translations.
    """

    def __init__(self, terms: Iterable[Sequence[str]], name: str = "`glossary`") -> None:
        self._targets: dict[str, str] = {}
        self._by_first: dict[str, list[str]] = {}
        for number, (source, target) in enumerate(terms, start=1):
            where = f"Received: {quoted(source)} and {quoted(target)}, entry {number}."
            if not all(isinstance(text, str) and text.strip() for text in (source, target)):
                raise UserError(f"{name} must have a term and its translation. {where}")
            source, target = source.strip(), target.strip()
            if self._targets.setdefault(source, target) != target:
                raise UserError(
                    f"{name} must have one translation for a term: leave out "
                    f"{quoted(self._targets[source])} or the other. {where}"
                )
            self._by_first.setdefault(_first(source), []).append(source)
        for some in self._by_first.values():
            some.sort(key=len, reverse=True)

    def __len__(self) -> int:
        return len(self._targets)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a table of terms, source and target; UserError for other lines."""
        lines = enumerate(read_lines(path), start=1)
        rows = [(number, line) for number, line in lines if line.strip()]
        for number, line in rows:
            if [bool(cell.strip()) for cell in line.split("\t")] != [True, True]:
                raise UserError(
                    f"Each line of {path} must have a term, a tab and its translation. "
                    f"Received: {quoted(line)}, line {number}."
                )
        if not rows:
            logger.warning("%s has no terms", path)
        return cls([line.split("\t") for _, line in rows], str(path))

    def matches(self, text: str) -> Iterator[Match]:
        """Yields the longest term at each word of a text; they may overlap."""
        for word in _TOKEN.finditer(text):
            for term in self._by_first.get(word[0].casefold(), ()):
                start, end = word.start(), word.start() + len(term)
                found = text[start:end]
                same = found == term or (term.islower() and found.casefold() == term.casefold())
                whole = not (text[end - 1 : end].isalnum() and text[end : end + 1].isalnum())
                if same and whole:
                    yield Match(start, end, "term", self._targets[term])
                    break


def _first(term: str) -> str:
    match = _TOKEN.match(term)
    return match[0].casefold() if match else term


# --- Slots -------------------------------------------------------------------------------


class Slotted(NamedTuple):
    """A text with slots.

    Attributes:
        text: the text, with slots for its spans.
        spans: the span of each slot, from `<1>` on.
        glued: of each, whether it is a tag that touches what is before it, and after it.
        left: number of spans that found no slot, which stay in the text.
        crossing: number of terms left out because another that begins earlier overlaps them.
    """

    text: str
    spans: tuple[Match, ...] = ()
    glued: tuple[tuple[bool, bool], ...] = ()
    left: int = 0
    crossing: int = 0

    def begin(self, prefix: str) -> str:
        """Returns the prefix of a translation with slots for its spans."""
        for slot, span in zip(SLOTS, self.spans, strict=False):
            prefix = prefix.replace(span.target, slot, 1)
        return prefix

    def fill(self, translation: str) -> str:
        """Returns a translation with the spans in place of the slots.

        Tags stand in the order of the source, if the model's would not close them rightly.
        """
        order = [SLOTS.index(slot) for slot in dict.fromkeys(_SLOT.findall(translation))]
        order = [number for number in order if number < len(self.spans)]
        tags = [number for number in order if self.spans[number].kind == "tag"]
        chosen = dict(zip(order, order, strict=True))
        if not _nested([self.spans[number].target for number in tags]):
            chosen |= zip(tags, sorted(tags), strict=True)
        rest = set(order)

        def span(match: re.Match) -> str:
            number = SLOTS.index(match[2])
            if number not in rest:
                return match[0]
            rest.remove(number)
            before, after = self.glued[chosen[number]]
            text = self.spans[chosen[number]].target
            return match[1] * (not before) + text + match[3] * (not after)

        return re.sub("( ?)(<[1-9]>)( ?)", span, translation)


def _apart(character: str) -> bool:
    """Tells whether a slot for a tag stands apart from this neighbour, as in training."""
    return character.isalnum() or character in tuple("<>{}%&")


def _nested(tags: Sequence[str]) -> bool:
    """Tells whether each closing tag closes the last one that is open; a tag may be single."""
    names = [re.sub(r"[\s/>].*", "", tag.lstrip("</"), flags=re.DOTALL) for tag in tags]
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


@dataclass(frozen=True)
class Protection:
    """Which spans of a text become slots.

    Attributes:
        patterns: kinds of spans, and the expressions that find them.
        glossary: terms, which become slots too.
        symbols: words of the model's own, such as "<made>", which are no spans.
    """

    patterns: tuple[tuple[str, re.Pattern], ...] = _DEFAULT
    glossary: Glossary | None = None
    symbols: frozenset[str] = frozenset()

    def protect(self, text: str) -> Slotted:
        """Returns a text with slots for its first nine spans.

        What looks like a slot already is a span. Without patterns and terms, the text is left
        as it is: its slots are the caller's.
        """
        if not (self.patterns or self.glossary):
            return Slotted(text)
        found = [Match(*slot.span(), "slot", slot[0]) for slot in _SLOT.finditer(text)]
        terms = self.glossary.matches(text) if self.glossary else ()
        spans = [m for m in _matches(text, self.patterns) if m.target not in self.symbols]
        matches, crossing = _leftmost([*found, *terms, *spans])
        # Those that look like slots come first: one that stays in the text would be taken for
        # another span's.
        kept = sorted(sorted(matches, key=lambda match: match.kind != "slot")[: len(SLOTS)])
        slots = dict(zip(kept, SLOTS, strict=False))
        result, glued, last = "", [], 0
        for match in matches:
            result += text[last : match.start]
            whole, last = text[match.start : match.end], match.end
            before, after = text[match.start - 1 : match.start], text[last : last + 1]
            is_tag, is_term = match.kind == "tag", match.kind == "term"
            # A slot that touches a word stands for it.
            touches = before.isalnum() or (is_tag and _apart(before)), is_tag and _apart(after)
            if match in slots and is_term:
                glued.append((False, False))
                result += re.sub(r"(?<=\S)(?=\s|$)", slots[match], whole.replace("<", "< "))
            elif match in slots:
                glued.append(touches)
                space = " " * (touches[0] and not result.endswith(" "))
                result += space + slots[match] + " " * touches[1]
            else:
                result += whole.replace("<", "< ") if match.kind == "slot" else whole
        left = len(matches) - len(kept)
        return Slotted(result + text[last:], tuple(kept), tuple(glued), left, crossing)


def as_glossary(glossary: Mapping[str, str] | str | Path | Glossary | None) -> Glossary | None:
    """Returns a dictionary or a file as a `Glossary`."""
    known = isinstance(glossary, Mapping | str | Path | Glossary | None)
    require(known, "glossary", "a dictionary or a file", glossary)
    if isinstance(glossary, str | Path):
        return Glossary.read(Path(glossary))
    return Glossary(glossary.items()) if isinstance(glossary, Mapping) else glossary


def protection(
    protect: str | Path | None = None,
    glossary: Mapping[str, str] | str | Path | Glossary | None = None,
) -> Protection:
    """Returns what arguments of a user describe.

    Args:
        protect: "default", the kinds of this file; "none"; or a file of regular expressions,
            one a line, where `default` stands for those kinds and "# ..." is a comment.
        glossary: a dictionary, or a table of terms and their translations.

    Raises:
        UserError: if a file cannot be read, or has a wrong line.
    """
    terms = as_glossary(glossary)
    if protect in (None, "default"):
        return Protection(glossary=terms)
    require(isinstance(protect, str | Path), "protect", "default, none or a file", protect)
    patterns: list[tuple[str, re.Pattern]] = []
    for number, line in enumerate(() if protect == "none" else read_lines(Path(protect)), 1):
        if line.strip() == "default":
            patterns += _DEFAULT
        elif line.strip() and not re.match(r"#(\s|$)", line):
            try:
                with warnings.catch_warnings(action="ignore"):  # such as "Possible nested set"
                    patterns.append(("pattern", re.compile(line)))
            except re.error as error:
                raise UserError(
                    f"Each line of {protect} must be a regular expression or `default`. "
                    f"Received: {quoted(line)}, line {number}: {error}."
                ) from None
    if protect != "none" and not patterns:
        logger.warning("%s has no expressions", protect)
    return Protection(tuple(patterns), terms)


def require_slots(
    has_slots: bool, protect: Any, glossary: Any, name: Callable[[str], str] = "`{}`".format
) -> None:
    """Raises UserError if a model without slots is to keep spans or terms.

    `name` returns what the user calls these arguments.
    """
    given = "glossary" if glossary else "protect" if protect not in (None, "none") else ""
    if given and not has_slots:
        raise UserError(
            f"{name(given)} needs a model trained with data.slots, which can keep spans. Train "
            "one with --set data.slots=0.2, or leave it out."
        )


class KeptTranslations(NamedTuple):
    """Translations of texts of which spans were kept.

    Attributes:
        slotted: each text with slots for its spans.
        ranked: its translations with slots, best first.
        filled: the same with the spans in place of the slots.
        notes: a line for each thing that did not go as a user expects, with its number.
    """

    slotted: list[Slotted]
    ranked: list[list[Any]]
    filled: list[list[Any]]
    notes: list[str]


def translate_kept(
    texts: Sequence[str],
    kept: Protection,
    search: Callable[[list[Slotted]], list[list[Any]]],
) -> KeptTranslations:
    """Translates texts around the spans that are kept in them.

    `search` returns one `Translation` or several of each text with slots.
    """
    slotted = [kept.protect(text) for text in texts]
    ranked = search(slotted)
    filled = []
    for text, one, some in zip(texts, slotted, ranked, strict=True):
        wholes = [each.with_text(one.fill(each)) for each in some] if one.spans else some
        for whole in wholes:
            whole.source = text
        filled.append(wholes)
    return KeptTranslations(slotted, ranked, filled, _notes(slotted, ranked))


def _notes(slotted: Sequence[Slotted], ranked: Sequence[Sequence[Any]]) -> list[str]:
    pairs = [(one, some[0]) for one, some in zip(slotted, ranked, strict=True)]
    slots = [({*SLOTS[: len(one.spans)]}, {*_SLOT.findall(best)}) for one, best in pairs]
    lost = sum(len(sent - found) for sent, found in slots)
    forced = sum(
        bool(one.spans and best.is_cut and best.endswith(SLOTS)) for one, best in pairs
    )
    lines = {
        f"spans beyond the first {len(SLOTS)} of a sentence, which are not protected: %d; "
        "split it": sum(one.left for one in slotted),
        "terms left out, since another that begins earlier overlaps them: %d; add the longer "
        "term to the glossary": sum(one.crossing for one in slotted),
        "spans that found no room in the translation: %d; raise its length limit, or shorten "
        "the sentence": lost,
        "translations at their length limit, to whose end spans were moved: %d; raise it, or "
        "shorten the sentence": forced,
    }
    return [line % count for line, count in lines.items() if count]
