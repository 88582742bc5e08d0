"""Places for spans in a translation that is fixed already.

    "Ein Hund läuft."  +  <1> <2>  ->  "Ein <1> Hund <2> läuft."

A model with slots tells of every border of words how likely each slot is there; one without
tells which words belong together. Every word stays, and each slot comes once. No TensorFlow.
"""

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

import numpy as np

from tf_transformer.config import SLOTS
from tf_transformer.data.vocabulary import SPACE_PIECE
from tf_transformer.terms.glossary import RUN
from tf_transformer.terms.spans import Span, nested, partners

_WORD = rf"(?:(?!{RUN})\w)+"
_UNIT = re.compile(rf"<[1-9]>|{RUN}|{_WORD}(?:[^\w\s<>]{_WORD})*|[^\w\s<>]+|[<>]")
_WIDTH, _MARGIN = 3, 3.0  # drafts of a translation at most, and how much less likely in nats


class Pass(NamedTuple):
    """What a model with slots says of a source and a translation, both with slots.

    Attributes:
        pieces: T - 1 pieces of the translation.
        log_probs: of each piece and EOS, [T].
        slots: log-probability that each slot comes in its place, [T, 9].
    """

    pieces: Sequence[str]
    log_probs: np.ndarray
    slots: np.ndarray


class Nearest(NamedTuple):
    """The pieces of a source and of its translation; of each of these, the number of one."""

    source: Sequence[str]
    target: Sequence[str]
    nearest: Sequence[int]


class Job(NamedTuple):
    """Spans to place: the source with all slots and without those, and the translation.

    `glued` is of each span whether it touches what is before it and after it in the source.
    """

    source: str
    bare: str
    spans: Sequence[Span]
    glued: Sequence[tuple[bool, bool]]
    waiting: Sequence[int]  # slots to place, from 0, in the order of the source
    begin: str  # the forced beginning, with slots
    translation: str


@dataclass(frozen=True)
class Draft:
    """A translation with some of its slots: words, marks and slots, and what is before each.

    Attributes:
        units: words, marks of punctuation and slots.
        gaps: blanks before each, and after the last: those of the text that the user gets.
        likely: log-probability of the places so far.
        timings: the same of each slot, by its number.
    """

    units: tuple[str, ...]
    gaps: tuple[str, ...]
    likely: float = 0.0
    timings: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(cls, text: str) -> Self:
        """Takes a text apart."""
        found = [*_UNIT.finditer(text)]
        ends = [0, *(match.end() for match in found)]
        starts = [*(match.start() for match in found), len(text)]
        gaps = [text[end:start] for end, start in zip(ends, starts, strict=True)]
        return cls(tuple(match[0] for match in found), tuple(gaps))

    def with_slot(
        self, place: int, number: int, sides: tuple[bool, bool] | None, likely: float = 0.0
    ) -> Self:
        """Returns one with a slot before a unit, which touches what is on these sides.

        `sides` are those of a tag; what is no tag stands apart from words.
        """
        gap = self.gaps[place]
        if sides is None:
            left, right = self.units[place - 1 : place], self.units[place : place + 1]
            before = gap or " " * bool(place and left[0][-1].isalnum())
            after = gap or " " * bool(right and right[0][0].isalnum())
        else:
            before, after = "" if sides[0] else gap, "" if sides[1] else gap
        return replace(
            self,
            units=(*self.units[:place], SLOTS[number], *self.units[place:]),
            gaps=(*self.gaps[:place], before, after, *self.gaps[place + 1 :]),
            likely=self.likely + likely,
            timings=(*self.timings, (number, likely)),
        )

    def render(self) -> tuple[str, dict[int, tuple[bool, bool]]]:
        """Returns the text for a model, and of each slot on which sides its blanks go again."""
        text, added = "", list[bool]()
        for number, gap in enumerate(self.gaps):
            left, right = ("".join(self.units[n : n + 1]) for n in (number - 1, number))
            left = left if number else ""
            is_slot = left in SLOTS or right in SLOTS
            apart = (left in SLOTS and stands_apart(right[:1])) or (
                right in SLOTS and stands_apart(left[-1:], ".!?…:;。！？।؟")
            )
            added.append(not gap and is_slot and apart)
            text += (gap or " " * added[-1]) + right
        slots = [place for place, unit in enumerate(self.units) if unit in SLOTS]
        glued = {SLOTS.index(self.units[p]): (added[p], added[p + 1]) for p in slots}
        return text, glued

    def tags(self, spans: Sequence[Span], pending: set[int]) -> list[str]:
        """Returns the tags in it in order, without those whose partners have no place yet."""
        numbers = [SLOTS.index(unit) for unit in self.units if unit in SLOTS]
        tags = [n for n in numbers if spans[n].kind == "tag" and n not in pending]
        return [spans[n].target for n in tags]

    def starts(self, pieces: Sequence[str]) -> list[int | None]:
        """Returns which piece each unit begins with, and the end; None if it is inside one."""
        whole, read, places = "".join(self.units), 0, {0: 0}
        for number, piece in enumerate(pieces, start=1):
            bare = piece.replace(SPACE_PIECE, "")
            if not whole.startswith(bare, read):
                break  # such as a letter in bytes
            read += len(bare)
            places.setdefault(read, number)
        sizes = np.cumsum([0, *map(len, self.units)]).tolist()
        return [*(places.get(size) for size in sizes[:-1]), len(pieces)]


def stands_apart(character: str, others: str = "") -> bool:
    """Tells whether a slot for a tag stands apart from this neighbour, as in training."""
    return character.isalnum() or character in tuple("<>{}%&" + others)


def as_begun(job: Job) -> tuple[Draft, int]:
    """Returns the translation with the slots of its forced beginning, and where that ends."""
    waits = [SLOTS[number] for number in job.waiting]
    bare = re.sub("|".join(waits) or "$^", "", job.begin).rstrip()
    if not job.begin or not job.translation.startswith(bare):
        return Draft.of(job.translation), 0
    rest = job.translation[len(bare) :]
    return Draft.of(job.begin + rest), len(Draft.of(job.begin).units)


def _sides(job: Job, number: int, closing: dict[int, int]) -> tuple[bool, bool] | None:
    """Returns which sides a tag touches: what it opens or closes, or as in the source."""
    if job.spans[number].kind != "tag":
        return None
    if number in closing:
        return False, True
    return (True, False) if number in closing.values() else job.glued[number]


def _closing(job: Job) -> dict[int, int]:
    """Returns the number of the slot that closes another, by that."""
    tags = [span.target if span.kind == "tag" else "" for span in job.spans]
    return {one: other for one, other in partners(tags).items() if one < other}


# --- By slots ----------------------------------------------------------------------------


def place_slots(
    jobs: Sequence[Job], passes: Callable[[list[str], list[str]], Sequence[Pass]]
) -> list[Draft]:
    """Returns each translation with its slots where a model finds them most likely.

    `passes` computes a forced pass over each source and translation with slots. The slots come
    one by one, in the order of the source, each at a border of words; the likeliest drafts go
    on, and that with the best log-probability is taken.
    """
    begun = [as_begun(job) for job in jobs]
    beams = [[draft] for draft, _ in begun]
    left = [[n for n in job.waiting if SLOTS[n] not in draft.units]
            for job, (draft, _) in zip(jobs, begun, strict=True)]  # fmt: skip
    for turn in range(max(map(len, left), default=-1) + 1):
        rows = [
            row for row, slots in enumerate(left)
            if turn < len(slots) or (turn == len(slots) and len(beams[row]) > 1)
        ]  # fmt: skip
        drafts = [(row, draft) for row in rows for draft in beams[row]]
        texts = [draft.render()[0] for _, draft in drafts]
        found = iter(passes([jobs[row].source for row, _ in drafts], texts))
        for row in rows:
            both = [(draft, next(found)) for draft in beams[row]]
            if turn == len(left[row]):
                sums = [float(np.sum(each.log_probs)) for _, each in both]
                beams[row] = [both[int(np.argmax(sums))][0]]
                continue
            number = left[row][turn]
            beams[row] = _extended(jobs[row], both, number, left[row][turn:], begun[row][1])
    return [best for best, *_ in beams]


def _extended(
    job: Job,
    both: Sequence[tuple[Draft, Pass]],
    number: int,
    waiting: Sequence[int],
    first: int,
) -> list[Draft]:
    """Returns the likeliest drafts with one slot more, none before unit `first`."""
    closing = _closing(job)
    sides = _sides(job, number, closing)
    pending = {one for one, other in closing.items() if other in waiting and other != number}
    scored: list[tuple[float, Draft, int]] = []
    for draft, found in both:
        here = np.asarray(found.slots[:, number], np.float64)
        # Not before: the probability that it comes at none of the places so far.
        skipped = np.log1p(-np.minimum(np.exp(here), 1 - 1e-6))
        timing = here + np.cumsum(skipped) - skipped
        for place, piece in enumerate(draft.starts(found.pieces)):
            if place >= first and piece is not None and piece < len(timing):
                scored.append((float(timing[piece]), draft, place))
    scored.sort(key=lambda each: -(each[0] + each[1].likely))
    chosen: list[Draft] = []
    for is_strict in (True, False):
        for likely, draft, place in scored:
            new = draft.with_slot(place, number, sides, likely)
            if is_strict and not _is_right(job, new, number, pending, closing):
                continue
            if len(chosen) == _WIDTH or (chosen and new.likely < chosen[0].likely - _MARGIN):
                break
            chosen.append(new)
        if chosen:
            return chosen
    return [draft.with_slot(len(draft.units), number, sides, -math.inf) for draft, _ in both]


def _is_right(
    job: Job, draft: Draft, number: int, pending: set[int], closing: dict[int, int]
) -> bool:
    """Tells whether a draft is nested, and its new tag closes as much as in the source."""
    if not nested(draft.tags(job.spans, pending)):
        return False
    opening = next((one for one, other in closing.items() if other == number), None)
    if opening is None:
        return True
    start, end = (draft.units.index(SLOTS[n]) for n in (opening, number))
    inside = [unit for unit in draft.units[start + 1 : end] if unit not in SLOTS]
    source = job.source.partition(SLOTS[opening])[2].partition(SLOTS[number])[0]
    return bool(inside) or not re.sub("<[1-9]>", "", source).strip()


# --- By alignment ------------------------------------------------------------------------


def place_by_alignment(
    jobs: Sequence[Job], nearest: Callable[[list[str], list[str]], Sequence[Nearest]]
) -> list[Draft]:
    """Returns each translation with its slots, beside the words that belong to the source's.

    `nearest` aligns the pieces of each source and translation without slots. A word is marked
    if any of its pieces is; a tag and its partner stand around all words that belong to those
    between them.
    """
    sources = [job.bare for job in jobs]
    found = nearest(sources, [job.translation for job in jobs])
    return [_aligned(job, one) for job, one in zip(jobs, found, strict=True)]


def _aligned(job: Job, found: Nearest) -> Draft:
    draft, first = as_begun(job)
    source, target = Draft.of(job.bare), Draft.of(job.translation)
    links = _links(source, target, found)
    ends = np.cumsum([0, *map(len, source.units)])
    waiting = [number for number in job.waiting if SLOTS[number] not in draft.units]
    closing, chosen = _closing(job), dict[int, int]()
    for number in waiting:
        read = len(re.sub(r"<[1-9]>|\s", "", job.source.partition(SLOTS[number])[0]))
        other = closing.get(number)
        if number in chosen:
            continue
        if other in waiting:
            size = len(re.sub(r"<[1-9]>|\s", "", job.source.partition(SLOTS[other])[0]))
            inside = range(*np.searchsorted(ends, [read + 1, size]) - [1, 0])
            if marked := [unit for near, unit in links if near in inside]:
                chosen |= {number: min(marked), other: max(marked) + 1}
                continue
        place = int(np.searchsorted(ends, read))
        before = [unit + 1 for near, unit in links if near == place - 1]
        behind = [unit for near, unit in links if near == place]
        chosen[number] = max(before) if before else min(behind, default=0)
        if place in (0, len(source.units)):
            chosen[number] = len(target.units) if place else 0
        if other in waiting:
            chosen[other] = chosen[number]
    placed = sorted(waiting, key=lambda n: (chosen[n], n not in closing.values(), n))
    tags = [number for number in placed if job.spans[number].kind == "tag"]
    if not nested([job.spans[number].target for number in tags]):
        order = dict(zip(tags, sorted(tags), strict=True))
        chosen = {order.get(number, number): place for number, place in chosen.items()}
        placed = [order.get(number, number) for number in placed]
    shift = len(draft.units) - len(target.units)
    for number in reversed(placed):
        place = max(chosen[number] + shift, first)
        draft = draft.with_slot(place, number, _sides(job, number, closing))
    return draft


def _links(source: Draft, target: Draft, found: Nearest) -> list[tuple[int, int]]:
    """Returns the units, of source and translation, that belong together; marks to marks."""
    of_source, of_target = (
        _units_of(draft, pieces)
        for draft, pieces in ((source, found.source), (target, found.target))
    )
    pairs = zip(found.nearest, of_target, strict=False)
    links = {(of_source[near], unit) for near, unit in pairs if near < len(of_source)}
    return sorted(
        (one, other) for one, other in links
        if one < len(source.units) and other < len(target.units)
        and source.units[one][0].isalnum() == target.units[other][0].isalnum()
    )  # fmt: skip


def _units_of(draft: Draft, pieces: Sequence[str]) -> list[int]:
    """Returns the unit that each piece begins in."""
    ends = np.cumsum([len(unit) for unit in draft.units])
    sizes = [len(piece.replace(SPACE_PIECE, "")) for piece in pieces]
    return np.searchsorted(ends, np.cumsum([0, *sizes])[:-1], side="right").tolist()
