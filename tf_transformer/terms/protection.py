"""Spans that a translation keeps: replaced by slots before it, and filled in after it.

A slot is a piece of the vocabulary, `<1>` to `<9>`, that stands for a span:

    "Write to a@b.de, <b>now</b>!"  ->  "Write to <1>, <2> now <3>!"   a@b.de  <b>  </b>

A model trained with `data.slots` translates the text around slots, and its search uses each
slot of the source once (`decoding.rules.Slots`); then the spans stand there again. No
TensorFlow.
"""

import logging
import re
import warnings
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, Self

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.config import SLOTS
from tf_transformer.config.settings import require
from tf_transformer.data.text import read_lines
from tf_transformer.terms.glossary import Glossary, as_glossary, occurrences
from tf_transformer.terms.spans import (
    ALL_NUMBERS,
    DEFAULT_PATTERNS,
    MARKS,
    SLOT,
    UNNAMED,
    Span,
    between_tags,
    leftmost,
    nested,
    partners,
    spans_of,
    stands_apart,
)

logger = logging.getLogger(__name__)

_AFTER_NO_BLANK = tuple(".,;:!?…)]")  # no blank stands before them


class Slotted(NamedTuple):
    """A text with slots.

    Attributes:
        text: the text, with slots for its spans.
        spans: the span of each slot, from `<1>` on.
        glued: of each, whether it touches what is before it, and after it.
        left: number of spans that found no slot, which stay in the text.
        crossing: number of terms left out because another that begins earlier overlaps them.
        before, after: tags around the text, which the model does not see.
        inner: the text between these, with its spans.
    """

    text: str
    spans: tuple[Span, ...] = ()
    glued: tuple[tuple[bool, bool], ...] = ()
    left: int = 0
    crossing: int = 0
    before: str = ""
    after: str = ""
    inner: str = ""

    def shown(self, slots: Collection[int], out: Collection[int] = ()) -> Self:
        """Returns the text with some of its slots, numbered from `<1>` on.

        The spans of `out` are taken out, and the others stand as they are.
        """
        if not self.spans:
            return self
        parts, glued, last = list[str | None](), list[tuple[bool, bool]](), 0
        closed = partners([s.target if s.kind == "tag" else "" for s in self.spans])
        safe = escaped if slots else str
        for number, span in enumerate(self.spans):
            parts.append(safe(self.inner[last : span.start]))
            whole, last = self.inner[span.start : span.end], span.end
            before, after = self.inner[span.start - 1 : span.start], self.inner[last : last + 1]
            if number in out:
                if not (number in closed and before.isalnum() and after.isalnum()):
                    parts.append(None)
            elif number not in slots:
                parts.append(safe(whole))
            elif span.kind == "term":  # a slot that touches a word stands for it
                slot = SLOTS[len(glued)]
                glued.append((False, False))
                parts.append(re.sub(r"(?<=[^\s<])(?=\s|$)", slot, safe(whole)))
            else:
                slot, is_tag = SLOTS[len(glued)], span.kind == "tag"
                touches = is_tag and stands_apart(before, MARKS), is_tag and stands_apart(after)
                glued.append((before.isalnum() or touches[0], touches[1]))
                has_space = "".join(part or "" for part in parts).endswith(" ")
                space = " " * (glued[-1][0] and not has_space)
                parts.append(space + slot + " " * touches[1])
        text = _joined([*parts, safe(self.inner[last:])])
        spans = tuple(self.spans[number] for number in sorted(slots))
        return self._replace(text=text, spans=spans, glued=tuple(glued))

    def begin(self, prefix: str) -> str:
        """Returns the prefix of a translation with slots; it may lack the tags before it."""
        if self.before.startswith(prefix):
            return ""
        prefix = prefix.removeprefix(self.before).removesuffix(self.after)
        targets = [span.target for span in self.spans]
        longest_first = map(re.escape, sorted(targets, key=len, reverse=True))
        parts = re.split(f"({'|'.join(longest_first)})", prefix)
        for place in range(1, len(parts), 2):
            if parts[place] in targets:
                number = targets.index(parts[place])
                parts[place], targets[number] = SLOTS[number], ""
        if self.spans:  # what looks like a slot is the user's
            parts[::2] = map(escaped, parts[::2])
        return "".join(parts)

    def is_free(self, number: int) -> bool:
        """Tells whether blanks or marks are around a span, so that it can be left out."""
        span = self.spans[number]
        left, right = self.inner[: span.start], self.inner[span.end :]
        return bool(re.search(r"(^|\s)$", left) and re.match(r"\s|$|[.,;:!?…](\s|$)", right))

    def fill(self, translation: str, targets: Sequence[str] = ()) -> str:
        """Returns a translation with the spans in place of the slots, or with other `targets`.

        Tags stand in the order of the source, if the model's would not close them rightly.
        """
        targets = targets or [span.target for span in self.spans]
        parts = re.split(f"({SLOT.pattern})", translation)  # texts, and slots between them
        places: dict[int, int] = {}
        for place in range(1, len(parts), 2):
            places.setdefault(SLOTS.index(parts[place]), place)
        order = [number for number in places if number < len(self.spans)]
        tags = [number for number in order if self.spans[number].kind == "tag"]
        chosen = dict(zip(order, order, strict=True))
        if not nested([self.spans[number].target for number in tags]):
            chosen |= zip(tags, sorted(tags), strict=True)
        parts[::2] = [re.sub("< (?= *[1-9]>)", "<", part) for part in parts[::2]]
        for number in order:
            place, (before, after) = places[number], self.glued[chosen[number]]
            parts[place] = targets[chosen[number]]
            parts[place - 1] = parts[place - 1].removesuffix(" " * before)
            parts[place + 1] = parts[place + 1].removeprefix(" " * after)
        return self.before + "".join(parts) + self.after

    def faults(self, translation: str) -> tuple[str, ...]:
        """Returns what only the slots of a translation show, of `FAULTS`."""
        numbered = [*zip(SLOTS, self.spans, strict=False)]
        unnamed = [slot for slot, span in numbered if UNNAMED.match(span.target)]
        order = [slot for slot in dict.fromkeys(SLOT.findall(translation)) if slot in unnamed]
        rest = re.sub(rf"\S+{SLOT.pattern}", "", self.text)  # of the source, without its terms
        doubled = any(
            form not in rest and occurrences(form, translation)
            for span in self.spans if span.kind == "term" for form in span.forms
        )  # fmt: skip
        found = {
            "blank": bool(self.before or self.after) and not translation.strip(),
            "placeholder moved": order != sorted(order), "term doubled": doubled,
        }  # fmt: skip
        return tuple(name for name, applies in found.items() if applies)


def escaped(text: str) -> str:
    """Returns text that stays, in which nothing is a slot."""
    return re.sub("<(?= *[1-9]>)", "< ", text)


def _joined(parts: Iterable[str | None]) -> str:
    """Returns a text of parts; where one was taken out, None, with a blank or none there."""
    text, is_gap = "", False
    for part in parts:
        if part and is_gap:
            left, right = text[-1:], part[0]
            if right == " " and (not left or left.isspace()):
                part = part[1:]
            elif left == " " and right in _AFTER_NO_BLANK:
                text = text[:-1]
            text += " " * (left.isalnum() and right.isalnum())
        is_gap = part is None or (is_gap and not part)
        text += part or ""
    return text[:-1] if is_gap and text.endswith(" ") else text


@dataclass(frozen=True)
class Protection:
    """Which spans of a text become slots.

    Attributes:
        patterns: kinds of spans, and the expressions that find them.
        glossary: terms, which become slots too.
        symbols: words of the model's own, such as "<made>", which are no spans.
    """

    patterns: tuple[tuple[str, re.Pattern], ...] = DEFAULT_PATTERNS
    glossary: Glossary | None = None
    symbols: frozenset[str] = frozenset()

    def protect(self, text: str) -> Slotted:
        """Returns a text with slots for its first nine spans.

        What looks like a slot already is a span. Tags around the text have no slot. Without
        patterns and terms, the text is left as it is: its slots are the caller's.
        """
        if not (self.patterns or self.glossary):
            return Slotted(text)
        opening = closing = ""
        for taken_off in range(20):  # tags at most, on either side
            spans, crossing = self._spans(text)
            start, end = between_tags(text, spans)
            if end - start == len(text) or taken_off == 19:
                break
            opening, closing = opening + text[:start], text[end:] + closing
            text = text[start:end]
        # Those that look like slots come first: one that stays in the text would be taken for
        # another span's.
        kept = sorted(sorted(spans, key=lambda span: span.kind != "slot")[: len(SLOTS)])
        counts = len(spans) - len(kept), crossing
        sent = Slotted(text, tuple(kept), (), *counts, opening, closing, text)
        return sent.shown(range(len(kept))) if kept else sent._replace(text=escaped(text))

    def _spans(self, text: str) -> tuple[list[Span], int]:
        """Returns the spans of a text, and the number of terms that cross others."""
        own_slots = [
            Span(*slot.span(), "slot", slot[0]) for slot in re.finditer("< *[1-9]>", text)
        ]
        terms = self.glossary.spans(text) if self.glossary else ()
        others = [s for s in spans_of(text, self.patterns) if s.target not in self.symbols]
        return leftmost([*own_slots, *terms, *others])

    def identity(self) -> list[Any]:
        """Returns all that it depends on, as JSON has it."""
        terms = self.glossary.terms if self.glossary else {}
        return [[[kind, it.pattern, it.flags] for kind, it in self.patterns], terms]

    def as_read(self, source: str, target: str, has_slots: bool) -> "Read":
        """Returns a text and its translation as a model reads them, to score or align them.

        Tags are taken out, and terms are words; other spans are slots if the model has them.
        """
        sent = replace(self, glossary=None).protect(source)
        if not (sent.spans or sent.before or sent.after):
            return Read(sent.text, target, (), ())
        tags = {number for number, span in enumerate(sent.spans) if span.kind == "tag"}
        slots = [
            number for number in range(len(sent.spans)) if has_slots and number not in tags
        ]
        read = ["" if n in tags else span.target for n, span in enumerate(sent.spans)]
        for slot, number in zip(SLOTS, slots, strict=False):
            read[number] = slot
        sides = [(sent.before, "")]
        last = 0
        for span, seen in zip(sent.spans, read, strict=True):
            sides += [(sent.inner[last : span.start],) * 2, (span.target, seen)]
            last = span.end
        sides += [(sent.inner[last:],) * 2, (sent.after, "")]
        others = [(sent.before * target.startswith(sent.before), "")]
        for part in re.split(f"({SLOT.pattern})", sent.begin(target)):
            number = SLOTS.index(part) if part in SLOTS else len(read)
            is_span = number < len(read)
            others.append(
                (sent.spans[number].target, read[number]) if is_span else (part, part)
            )
        others.append((sent.after * target.endswith(sent.after), ""))
        begun = re.sub(" {2,}", " ", "".join(seen for _, seen in others)).strip()
        if not has_slots:
            begun = re.sub("< (?= *[1-9]>)", "<", begun)
        with_text = getattr(target, "with_text", str)  # keeps the tokens of a translation
        return Read(sent.shown(slots, tags).text, with_text(begun), sides, others)

    def all_as_read(
        self, sources: Sequence[str], targets: Sequence[str], has_slots: bool
    ) -> list["Read"]:
        """Returns `as_read` of each pair."""
        pairs = zip(sources, targets, strict=True)
        return [self.as_read(*pair, has_slots) for pair in pairs]

    def with_numbers(self) -> Self:
        """Returns one that keeps numbers of any size besides."""
        return replace(self, patterns=(*self.patterns, ("number", ALL_NUMBERS)))


class Read(NamedTuple):
    """A text and its translation as a model reads them.

    `source_parts` and `target_parts` are what stands there, and what is read in its place; none
    if all is read as it is.
    """

    source: str
    target: str
    source_parts: Sequence[tuple[str, str]]
    target_parts: Sequence[tuple[str, str]]

    def moved(self, pairs: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
        """Returns aligned words of what is read as those of the texts themselves."""
        source, target = _words(self.source, self.source_parts), self._target_words()
        return sorted({(source[one], target[other]) for one, other in pairs})

    def spread(self, probs: Sequence[float], number: int) -> tuple[float, ...]:
        """Returns the probabilities of the words of the translation itself, `number` of them.

        Of a span of several words the first has it; the others and lone tags have 1.
        """
        words = self._target_words()
        if not self.target_parts or len(words) != len(probs):
            return tuple(probs)
        found = [1.0] * number
        for word, probability in zip(words, probs, strict=True):
            found[word] *= probability
        return tuple(found)

    def _target_words(self) -> list[int]:
        return _words(self.target, self.target_parts)


def _words(read: str, parts: Sequence[tuple[str, str]]) -> list[int]:
    if not parts:
        return [*range(len(read.split()))]
    owners, word, is_blank = list[int](), -1, True
    for whole, seen in parts:
        here = []
        for character in whole:
            word += is_blank and not character.isspace()
            is_blank = character.isspace()
            here += [] if is_blank else [word]
        size = len("".join(seen.split()))
        owners += here if size == len(here) else [here[0] if here else word] * size
    ends = [0, *accumulate(map(len, read.split()))]
    return [owners[min(end, len(owners) - 1)] for end in ends[:-1]]


def protection(
    protect: str | Path | Protection | None = None,
    glossary: Mapping[str, str] | str | Path | Glossary | None = None,
) -> Protection:
    """Returns what arguments of a user describe.

    Args:
        protect: "default", the kinds of `spans`; "none"; or a file of regular expressions,
            one a line, where `default` stands for those kinds and "# ..." is a comment; or a
            `Protection`, which has its own glossary unless one is given.
        glossary: a dictionary, or a table of terms and their translations.

    Raises:
        UserError: if a file cannot be read, or has a wrong line.
    """
    terms = as_glossary(glossary)
    if isinstance(protect, Protection):
        return replace(protect, glossary=terms or protect.glossary)
    if protect in (None, "default"):
        return Protection(glossary=terms)
    require(isinstance(protect, str | Path), "protect", "default, none or a file", protect)
    patterns: list[tuple[str, re.Pattern]] = []
    for number, line in enumerate(() if protect == "none" else read_lines(Path(protect)), 1):
        if line.strip() == "default":
            patterns += DEFAULT_PATTERNS
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


def require_slots(has_slots: bool, protect: Any, glossary: Any, aligns: bool = True) -> None:
    """Raises UserError if a model cannot keep terms, or spans: by slots or by alignment."""
    given = "protect" if protect not in (None, "none") and not aligns else ""
    given = "glossary" if glossary else given
    if given and not has_slots:
        other = "" if given == "glossary" else ", or a single model that can align words"
        raise UserError(
            f"`{given}` needs a model trained with `data.slots`, such as 0.2, which can keep "
            f"spans{other}. Train one, or leave it out."
        )
