"""Translates around the spans that are kept: what the model sees of them, and when.

    "Order 4711: <b>two</b> nets"  ->  "Order: two nets"  ->  "Bestellung: zwei Netze"
    ->  "Bestellung <1>: <2> zwei <3> Netze"  ->  "Bestellung 4711: <b>zwei</b> Netze"

No TensorFlow.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice, product
from typing import Any, NamedTuple

from tf_transformer.config import SLOTS
from tf_transformer.terms.glossary import occurrences
from tf_transformer.terms.placing import Draft, Job, place_by_alignment, place_slots
from tf_transformer.terms.protection import Protection, Slotted, escaped
from tf_transformer.terms.spans import SLOT

_ADDED = ("number", "address")  # kinds that a text may do without
_LEAST = -3.0  # log-probability of the place of such a span, at least
_COPIED = ("placeholder", "code", "@name")  # placed by a model without slots that lost them
_MOST_FORMS = 16  # of the terms of a sentence together


# Translates texts with slots, given their rows, the texts, their forced beginnings, and whether
# more than one translation of each is wanted.
Search = Callable[[Sequence[int], list[str], list[str], bool], list[list[Any]]]


class KeptTranslations(NamedTuple):
    """Translations of texts of which spans were kept.

    Attributes:
        slotted: each text with slots for its spans, but for those left to the model.
        ranked: its translations with slots, best first.
        filled: the same with the spans in place of the slots.
        notes: a line for each thing that did not go as a user expects, with its number.
    """

    slotted: list[Slotted]
    ranked: list[list[Any]]
    filled: list[list[Any]]
    notes: list[str]


class _Found(NamedTuple):
    """A translation with all slots, what fills them, and as it was found."""

    text: Any
    slotted: Slotted
    raw: Any


class _Line:
    """A text on its way.

    Attributes:
        sent: the text with a slot for each of its spans.
        numbers: those that are not left to the model; `out` of them it does not see.
        job, bare: the text with slots for `numbers`, and for what the model sees.
        found: the translations.
        timings: log-probabilities of the places of spans that were placed in the best.
    """

    def __init__(self, text: str, prefix: str, kept: Protection) -> None:
        self.text, self.prefix, self.sent = text, prefix, kept.protect(text)
        self.found: list[_Found] = []
        self.timings: dict[int, float] = {}

    def of(self, *kinds: str) -> set[int]:
        """Returns the numbers of the spans of these kinds."""
        return {number for number, span in enumerate(self.sent.spans) if span.kind in kinds}

    def plan(self, slots: set[int], out: set[int]) -> None:
        """Sets which spans the model sees as slots, and which are placed afterwards."""
        self.numbers, self.out, self.found = sorted(slots | out), out, []
        self.job, self.bare = self.sent.shown(self.numbers), self.sent.shown(slots, out)
        self.waiting = [place for place, n in enumerate(self.numbers) if n in out]
        self.seen = [SLOTS[place] for place, n in enumerate(self.numbers) if n in slots]
        self.begin = self.job.begin(self.prefix)

    def bare_begin(self) -> str:
        """Returns the forced beginning as the model sees it."""
        shown = dict(zip(self.seen, SLOTS, strict=False))
        bare = SLOT.sub(lambda slot: shown.get(slot[0], ""), self.begin)
        return bare.rstrip() if self.waiting else self.begin

    def to_place(self, translation: str) -> Job:
        """Returns what is to be placed in a translation of the bare text."""
        shown = dict(zip(SLOTS, self.seen, strict=False))
        text = translation if self.seen else escaped(translation)
        text = SLOT.sub(lambda slot: shown.get(slot[0], slot[0]), text)
        spans, glued = self.job.spans, self.job.glued
        return Job(self.job.text, self.bare.text, spans, glued, self.waiting, self.begin, text)

    def put(self, translation: Any, draft: Draft | None) -> None:
        """Takes a translation, with the places of what was not seen, if there was any."""
        text, slotted = translation, self.job
        if draft:
            rendered, added = draft.render()
            text, sides = translation.with_text(rendered), list(slotted.glued)
            for place, here in added.items():
                own = (False, False) if place in self.waiting else sides[place]
                sides[place] = own[0] or here[0], own[1] or here[1]
            slotted = slotted._replace(glued=tuple(sides))
            if not self.found:
                self.timings = {self.numbers[place]: each for place, each in draft.timings}
        self.found.append(_Found(text, slotted, translation))

    def lost(self, *kinds: str) -> set[int]:
        """Returns spans left to the model that the best translation does not have once."""
        numbers = self.of(*kinds) - {*self.numbers}
        counts = Counter(self.sent.spans[number].forms for number in numbers)
        best = self.found[0].text
        return {
            number for number in numbers
            if sum(occurrences(form, best) for form in self.sent.spans[number].forms)
            != counts[self.sent.spans[number].forms]
        }  # fmt: skip

    def texts(self, found: _Found) -> list[str]:
        """Returns a translation with its spans, once with each choice of the forms of terms."""
        forms = product(*(span.forms for span in found.slotted.spans))
        return [found.slotted.fill(found.text, each) for each in islice(forms, _MOST_FORMS)]


def translate_kept(
    texts: Sequence[str],
    kept: Protection,
    engine: Any,
    search: Search,
    decoding: Any,
    number: int = 1,
    prefixes: Sequence[str] | None = None,
) -> KeptTranslations:
    """Returns `number` translations of each text around the spans that are kept in it.

    Tags are taken out and placed in the translation, and so are numbers and addresses if there
    is a place that fits. Terms are left to the model first. A line that lost one is translated
    once more, with slots for all but the tags. A model without slots places what it loses by
    alignment. Without anything to keep, texts and translations pass as they are. `engine` is
    one of `decoding.interface`, which searches with `decoding`.
    """
    passes = partial(engine.slot_passes, decoding=decoding) if engine.places else None
    nearest = partial(engine.nearest, decoding=decoding) if engine.aligns else None
    place = partial(place_slots, passes=passes) if engine.has_slots and passes else None
    if nearest and not engine.has_slots:
        place = partial(place_by_alignment, nearest=nearest)
    each = zip(texts, prefixes or [""] * len(texts), strict=True)
    lines = [_Line(text, prefix, kept) for text, prefix in each]
    for line in lines:
        out = line.of("tag") if place else set()
        if place and engine.has_slots:
            out |= {n for n in line.of(*_ADDED) if line.sent.is_free(n)}
        others = {*range(len(line.sent.spans))} - out - line.of("term")
        line.plan(others if engine.has_slots else set(), out)
    _translate(lines, range(len(lines)), search, place, number)
    again = []
    for row, line in enumerate(lines):
        tags = line.out & line.of("tag")
        if engine.has_slots and (
            line.lost("term") or any(line.timings.get(n, 0.0) < _LEAST for n in line.out - tags)
        ):
            line.plan({*range(len(line.sent.spans))} - tags, tags)
        elif place and not engine.has_slots and (lost := line.lost(*_COPIED)):
            line.plan(set(), tags | lost)
        else:
            continue
        again.append(row)
    if again:
        _translate(lines, again, search, place, number)
    filled = _filled(lines, kept, engine, decoding)
    ranked = [[found.text for found in line.found] for line in lines]
    return KeptTranslations([line.job for line in lines], ranked, filled, _notes(lines))


def _translate(
    lines: Sequence[_Line],
    rows: Sequence[int],
    search: Search,
    place: Callable[[Sequence[Job]], list[Draft]] | None,
    number: int,
) -> None:
    """Translates lines around the slots that the model sees, and places the others."""
    some = [lines[row] for row in rows]
    has_terms = any(span.kind == "term" for line in some for span in line.bare.spans)
    texts, begins = [line.bare.text for line in some], [line.bare_begin() for line in some]
    found = search(rows, texts, begins, has_terms)
    both: list[tuple[_Line, Any]] = []
    for line, ranked in zip(some, found, strict=True):  # a term that is doubled goes last
        best = sorted(ranked, key=lambda one: "term doubled" in line.bare.faults(one))
        both += [(line, one) for one in best[:number]]
    jobs = [line.to_place(one) for line, one in both if line.waiting]
    drafts = place(jobs) if jobs and place else []
    for line, one in both:
        line.put(one, drafts.pop(0) if line.waiting else None)


def _filled(
    lines: Sequence[_Line], kept: Protection, engine: Any, decoding: Any
) -> list[list[Any]]:
    """Returns the translations with their spans, and with the numbers that `score` gives them.

    Of several forms of a term in a slot, the likeliest stands there.
    """
    sources, targets = list[str](), list[str]()
    choices: list[tuple[_Line, _Found, list[str], bool]] = []
    for line in lines:
        for found in line.found:
            is_plain = not line.sent.spans and line.sent.text == line.text
            texts = [] if is_plain else line.texts(found)
            read = [kept.as_read(line.text, text, engine.has_slots)[:2] for text in texts]
            scores = engine.scores and read not in ([], [(line.bare.text, found.raw)])
            choices.append((line, found, texts, scores))
            for source, target in read if scores else ():
                sources.append(source)
                targets.append(target)
    scored = iter(engine.score(sources, targets, decoding) if sources else ())
    filled: dict[int, list[Any]] = {id(line): [] for line in lines}
    for line, found, texts, scores in choices:
        whole = found.raw
        if texts:
            numbers = list(islice(scored, len(texts))) if scores else [found.raw]
            best = max(range(len(numbers)), key=lambda n: numbers[n].log_prob)
            whole = numbers[best].with_text(texts[best])
            whole.is_long, whole.is_cut = found.raw.is_long, found.raw.is_cut
        whole.source, whole.faults = line.text, found.slotted.faults(found.text)
        filled[id(line)].append(whole)
    return [*filled.values()]


def _notes(lines: Sequence[_Line]) -> list[str]:
    lost = forced = 0
    for line in lines:
        best = line.found[0]
        lost += len({*SLOTS[: len(line.job.spans)]} - {*SLOT.findall(best.text)})
        forced += bool(line.seen and best.raw.is_cut and best.raw.endswith(SLOTS))
    counts = {
        f"spans beyond the first {len(SLOTS)} of a sentence, which are not protected: %d; "
        "split it": sum(line.sent.left for line in lines),
        "terms left out, since another that begins earlier overlaps them: %d; add the longer "
        "term to the glossary": sum(line.sent.crossing for line in lines),
        "spans that found no room in the translation: %d; raise its length limit, or shorten "
        "the sentence": lost,
        "translations at their length limit, to whose end spans were moved: %d; raise it, or "
        "shorten the sentence": forced,
    }
    return [text % count for text, count in counts.items() if count]
