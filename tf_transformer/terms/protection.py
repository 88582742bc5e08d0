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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, Self

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.config import SLOTS
from tf_transformer.config.settings import require
from tf_transformer.data.text import read_lines
from tf_transformer.terms.glossary import Glossary, as_glossary
from tf_transformer.terms.spans import (
    ALL_NUMBERS,
    DEFAULT_PATTERNS,
    SLOT,
    UNNAMED,
    Span,
    between_tags,
    leftmost,
    nested,
    spans_of,
)

logger = logging.getLogger(__name__)


class Slotted(NamedTuple):
    """A text with slots.

    Attributes:
        text: the text, with slots for its spans.
        spans: the span of each slot, from `<1>` on.
        glued: of each, whether it touches what is before it, and after it.
        left: number of spans that found no slot, which stay in the text.
        crossing: number of terms left out because another that begins earlier overlaps them.
        before, after: tags around the text, which the model does not see.
    """

    text: str
    spans: tuple[Span, ...] = ()
    glued: tuple[tuple[bool, bool], ...] = ()
    left: int = 0
    crossing: int = 0
    before: str = ""
    after: str = ""

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
        return "".join(parts)

    def fill(self, translation: str) -> str:
        """Returns a translation with the spans in place of the slots.

        Tags stand in the order of the source, if the model's would not close them rightly.
        """
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
            parts[place] = self.spans[chosen[number]].target
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
            span.kind == "term" and span.target not in rest
            and re.search(rf"(?<!\w){re.escape(span.target)}(?!\w)", translation)
            for span in self.spans
        )  # fmt: skip
        found = {
            "blank": bool(self.before or self.after) and not translation.strip(),
            "placeholder moved": order != sorted(order), "term doubled": doubled,
        }  # fmt: skip
        return tuple(name for name, applies in found.items() if applies)


def _escaped(text: str) -> str:
    """Returns text that stays, in which nothing is a slot."""
    return re.sub("<(?= *[1-9]>)", "< ", text)


def _apart(character: str, others: str = "") -> bool:
    """Tells whether a slot for a tag stands apart from this neighbour, as in training."""
    return character.isalnum() or character in tuple("<>{}%&" + others)


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
        result, glued, last = "", list[tuple[bool, bool]](), 0
        for span, slot in zip(kept, SLOTS, strict=False):
            result += _escaped(text[last : span.start])
            whole, last = text[span.start : span.end], span.end
            before, after = text[span.start - 1 : span.start], text[last : last + 1]
            is_tag = span.kind == "tag"
            if span.kind == "term":  # a slot that touches a word stands for it
                glued.append((False, False))
                result += re.sub(r"(?<=[^\s<])(?=\s|$)", slot, _escaped(whole))
            else:
                touches = is_tag and _apart(before, ".!?…:;。！？।؟"), is_tag and _apart(after)
                glued.append((before.isalnum() or touches[0], touches[1]))
                space = " " * (glued[-1][0] and not result.endswith(" "))
                result += space + slot + " " * touches[1]
        result, left = result + _escaped(text[last:]), len(spans) - len(kept)
        counts = left, crossing
        return Slotted(result, tuple(kept), tuple(glued), *counts, opening, closing)

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

    def with_numbers(self) -> Self:
        """Returns one that keeps numbers of any size besides."""
        return replace(self, patterns=(*self.patterns, ("number", ALL_NUMBERS)))


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


def require_slots(has_slots: bool, protect: Any, glossary: Any) -> None:
    """Raises UserError if a model without slots is to keep spans or terms."""
    given = "glossary" if glossary else "protect" if protect not in (None, "none") else ""
    if given and not has_slots:
        raise UserError(
            f"`{given}` needs a model trained with `data.slots`, such as 0.2, which can keep "
            "spans. Train one, or leave it out."
        )


# --- Translation around the spans ------------------------------------------------------------


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

    `search` returns one `Translation` or several of each text with slots. Without anything to
    keep, the texts and translations pass as they are.
    """
    slotted = [kept.protect(text) for text in texts]
    ranked = search(slotted)
    filled = []
    for text, sent, translations in zip(texts, slotted, ranked, strict=True):
        wholes = translations
        if sent.spans or sent.text != text:
            wholes = [translation.with_text(sent.fill(translation)) for translation in wholes]
        for whole, translation in zip(wholes, translations, strict=True):
            whole.source, whole.faults = text, sent.faults(translation)
        filled.append(wholes)
    return KeptTranslations(slotted, ranked, filled, _notes(slotted, ranked))


def _notes(slotted: Sequence[Slotted], ranked: Sequence[Sequence[Any]]) -> list[str]:
    pairs = [(sent, best) for sent, (best, *_) in zip(slotted, ranked, strict=True)]
    lost = sum(len({*SLOTS[: len(sent.spans)]} - {*SLOT.findall(best)}) for sent, best in pairs)
    forced = sum(
        bool(sent.spans and best.is_cut and best.endswith(SLOTS)) for sent, best in pairs
    )
    lines = {
        f"spans beyond the first {len(SLOTS)} of a sentence, which are not protected: %d; "
        "split it": sum(sent.left for sent in slotted),
        "terms left out, since another that begins earlier overlaps them: %d; add the longer "
        "term to the glossary": sum(sent.crossing for sent in slotted),
        "spans that found no room in the translation: %d; raise its length limit, or shorten "
        "the sentence": lost,
        "translations at their length limit, to whose end spans were moved: %d; raise it, or "
        "shorten the sentence": forced,
    }
    return [line % count for line, count in lines.items() if count]
