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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.config import SLOTS
from tf_transformer.config.settings import require
from tf_transformer.data.text import read_lines
from tf_transformer.terms.glossary import Glossary, as_glossary
from tf_transformer.terms.spans import DEFAULT_PATTERNS, Span, leftmost, spans_of

logger = logging.getLogger(__name__)

SLOT = re.compile("<[1-9]>")


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
    spans: tuple[Span, ...] = ()
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
        order = [SLOTS.index(slot) for slot in dict.fromkeys(SLOT.findall(translation))]
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

    patterns: tuple[tuple[str, re.Pattern], ...] = DEFAULT_PATTERNS
    glossary: Glossary | None = None
    symbols: frozenset[str] = frozenset()

    def protect(self, text: str) -> Slotted:
        """Returns a text with slots for its first nine spans.

        What looks like a slot already is a span. Without patterns and terms, the text is left
        as it is: its slots are the caller's.
        """
        if not (self.patterns or self.glossary):
            return Slotted(text)
        own_slots = [Span(*slot.span(), "slot", slot[0]) for slot in SLOT.finditer(text)]
        terms = self.glossary.spans(text) if self.glossary else ()
        others = [s for s in spans_of(text, self.patterns) if s.target not in self.symbols]
        spans, crossing = leftmost([*own_slots, *terms, *others])
        # Those that look like slots come first: one that stays in the text would be taken for
        # another span's.
        kept = sorted(sorted(spans, key=lambda span: span.kind != "slot")[: len(SLOTS)])
        slots = dict(zip(kept, SLOTS, strict=False))
        result, glued, last = "", [], 0
        for span in spans:
            result += text[last : span.start]
            whole, last = text[span.start : span.end], span.end
            before, after = text[span.start - 1 : span.start], text[last : last + 1]
            is_tag = span.kind == "tag"
            # A slot that touches a word stands for it.
            touches = before.isalnum() or (is_tag and _apart(before)), is_tag and _apart(after)
            if span in slots and span.kind == "term":
                glued.append((False, False))
                result += re.sub(r"(?<=\S)(?=\s|$)", slots[span], whole.replace("<", "< "))
            elif span in slots:
                glued.append(touches)
                space = " " * (touches[0] and not result.endswith(" "))
                result += space + slots[span] + " " * touches[1]
            else:
                result += whole.replace("<", "< ") if span.kind == "slot" else whole
        left = len(spans) - len(kept)
        return Slotted(result + text[last:], tuple(kept), tuple(glued), left, crossing)


def protection(
    protect: str | Path | None = None,
    glossary: Mapping[str, str] | str | Path | Glossary | None = None,
) -> Protection:
    """Returns what arguments of a user describe.

    Args:
        protect: "default", the kinds of `spans`; "none"; or a file of regular expressions,
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
        if sent.spans:
            wholes = [translation.with_text(sent.fill(translation)) for translation in wholes]
        for whole in wholes:
            whole.source = text
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
