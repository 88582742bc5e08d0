"""Places for spans in a translation that is fixed already: every word stays.

    "Ein Hund läuft."  and  <1> <2>  ->  "Ein <1> Hund <2> läuft."

A model with slots tells how likely each is at each border of words; another one aligns words.
No TensorFlow.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np

from tf_transformer.config import SLOTS
from tf_transformer.data.vocabulary import SPACE_PIECE
from tf_transformer.terms.glossary import RUN
from tf_transformer.terms.spans import MARKS, Span, nested, partners, stands_apart

_WORD = rf"(?:(?!{RUN})\w)+"
_UNIT = re.compile(rf"<[1-9]>|{RUN}|{_WORD}(?:[^\w\s<>]{_WORD})*|[^\w\s<>]+|[<>]")
_NOT_WORDS = re.compile(r"<[1-9]>|\s")
_OPENING = tuple("([{„“\"'«¿¡")


class Pass(NamedTuple):
    """The T - 1 pieces of a translation, and log-probabilities of slots instead, [T, 9]."""

    pieces: Sequence[str]
    slots: np.ndarray


class Nearest(NamedTuple):
    """Pieces of a source and its translation; of each of the latter, the number of one."""

    source: Sequence[str]
    target: Sequence[str]
    nearest: Sequence[int]


class Job(NamedTuple):
    """A translation into which slots of its source are placed.

    `glued` is of each span whether it touches what is before it, and after it, in the source.
    """

    source: str  # with all slots
    bare: str  # without those that wait
    spans: Sequence[Span]
    glued: Sequence[tuple[bool, bool]]
    waiting: Sequence[int]  # from 0, in the order of the source
    begin: str  # the forced beginning, with slots
    translation: str

    def closing(self) -> dict[int, int]:
        """Returns the tag that closes another, by that."""
        found = partners([span.target if span.kind == "tag" else "" for span in self.spans])
        return {one: other for one, other in found.items() if one < other}

    def between(self, start: str, end: str) -> str:
        """Returns the words of the source between two slots, "" for its beginning."""
        text = self.source.partition(start)[2] if start else self.source
        return _NOT_WORDS.sub("", text.partition(end)[0])


class Draft(NamedTuple):
    """A translation with some of its slots: words, marks and slots, and the blanks around.

    `timings` are the log-probabilities of the places of those that were placed, by number.
    """

    units: tuple[str, ...]
    gaps: tuple[str, ...]  # before each, and at the end
    timings: tuple[tuple[int, float], ...] = ()

    @classmethod
    def of(cls, text: str) -> Self:
        """Takes a text apart."""
        found = [*_UNIT.finditer(text)]
        ends = [0, *(match.end() for match in found)]
        starts = [*(match.start() for match in found), len(text)]
        gaps = [text[end:start] for end, start in zip(ends, starts, strict=True)]
        return cls(tuple(match[0] for match in found), tuple(gaps))

    @classmethod
    def begun(cls, job: Job) -> tuple[Self, int]:
        """Returns the translation with the slots of its beginning, and where that ends."""
        waits = "|".join(SLOTS[number] for number in job.waiting)
        bare = re.sub(waits, "", job.begin).rstrip()
        if not job.begin or not job.translation.startswith(bare):
            return cls.of(job.translation), 0
        whole = job.begin + job.translation[len(bare) :]
        return cls.of(whole), len(cls.of(job.begin).units)

    def put(self, place: int, number: int, job: Job, timing: float) -> Self:
        """Returns one with a slot before a unit.

        A tag touches what it opens or closes, or what it does in the source; what is no tag
        stands apart from words.
        """
        gap, closing = self.gaps[place], job.closing()
        left, right = ("".join(self.units[max(n, 0) : n + 1]) for n in (place - 1, place))
        before = after = gap
        if job.spans[number].kind != "tag":
            opens = left in SLOTS and SLOTS.index(left) in closing
            before = gap or " " * (bool(left) and left not in _OPENING and not opens)
            after = gap or " " * right[:1].isalnum()
        elif number in closing:
            after = ""
        elif number in closing.values():
            before = ""
        else:
            before, after = ("" if touches else gap for touches in job.glued[number])
        return type(self)(
            (*self.units[:place], SLOTS[number], *self.units[place:]),
            (*self.gaps[:place], before, after, *self.gaps[place + 1 :]),
            (*self.timings, (number, timing)),
        )

    def render(self) -> tuple[str, dict[int, tuple[bool, bool]]]:
        """Returns the text for a model, and of each slot on which sides its blanks go again."""
        text, added = "", list[bool]()
        for left, right, gap in zip(
            ("", *self.units), (*self.units, ""), self.gaps, strict=True
        ):
            apart = (left in SLOTS and stands_apart(right[:1])) or (
                right in SLOTS and stands_apart(left[-1:], MARKS)
            )
            added.append(apart and not gap)
            text += (gap or " " * apart) + right
        slots = [place for place, unit in enumerate(self.units) if unit in SLOTS]
        return text, {SLOTS.index(self.units[p]): (added[p], added[p + 1]) for p in slots}

    def starts(self, pieces: Sequence[str]) -> list[int | None]:
        """Returns which piece each unit begins with, and the end; None if it is inside one."""
        whole, read, places = "".join(self.units), 0, {0: 0}
        for number, piece in enumerate(pieces, start=1):
            bare = piece.replace(SPACE_PIECE, "")
            if not whole.startswith(bare, read):
                break  # such as a letter in bytes
            read += len(bare)
            places.setdefault(read, number)
        ends = np.cumsum([0, *map(len, self.units)]).tolist()
        return [*map(places.get, ends[:-1]), len(pieces)]


def place_slots(
    jobs: Sequence[Job], passes: Callable[[list[str], list[str]], Sequence[Pass]]
) -> list[Draft]:
    """Returns each translation with its slots where a model finds them most likely.

    `passes` computes one over each source and translation with slots. The slots come one after
    the other, in the order of the source, each at a border of words; tags are nested.
    """
    begun = [Draft.begun(job) for job in jobs]
    drafts, left = [draft for draft, _ in begun], []
    for job, draft in zip(jobs, drafts, strict=True):
        left.append([n for n in job.waiting if SLOTS[n] not in draft.units])
    while rows := [row for row, numbers in enumerate(left) if numbers]:
        texts = [drafts[row].render()[0] for row in rows]
        for row, found in zip(
            rows, passes([jobs[row].source for row in rows], texts), strict=True
        ):
            number, draft = left[row][0], drafts[row]
            here = np.asarray(found.slots[:, number], np.float64)
            skipped = np.log1p(-np.minimum(np.exp(here), 1 - 1e-6))
            timing = here + np.cumsum(skipped) - skipped  # here, and at no place before
            starts = draft.starts(found.pieces)
            likely = {
                place: float(timing[piece]) for place, piece in enumerate(starts)
                if piece is not None and piece < len(timing) and place >= begun[row][1]
            }  # fmt: skip
            drafts[row] = _best(jobs[row], draft, number, left[row], likely)
            del left[row][0]
    return drafts


def _best(
    job: Job, draft: Draft, number: int, left: Sequence[int], likely: dict[int, float]
) -> Draft:
    """Returns a draft with one slot more, at the likeliest place at which tags are nested."""
    closing = job.closing()
    pending = {one for one, other in closing.items() if other in left and other != number}
    pair = next(
        ((one, other) for one, other in closing.items() if number in (one, other)), None
    )
    tags = {SLOTS[n]: span.target for n, span in enumerate(job.spans) if span.kind == "tag"}
    is_empty = pair is None or not _holds(Draft.of(job.source).units, pair, tags)
    order = sorted(likely, key=lambda place: -likely[place]) or [len(draft.units)]
    for place in order:
        new = draft.put(place, number, job, likely.get(place, -np.inf))
        here = [unit for unit in new.units if unit in tags and SLOTS.index(unit) not in pending]
        if nested([tags[unit] for unit in here]) and (
            pair is None or is_empty or _holds(new.units, pair, tags)
        ):
            return new
    return draft.put(order[0], number, job, likely.get(order[0], -np.inf))


def _holds(units: Sequence[str], pair: tuple[int, int], tags: Mapping[str, str]) -> bool:
    """Tells whether more than tags is between two slots; the second may have no place yet."""
    opening, closing = pair
    behind = [*units[units.index(SLOTS[opening]) + 1 :], SLOTS[closing]]
    ends = (unit == SLOTS[closing] or tags.get(unit, "").startswith("</") for unit in behind)
    inside = behind[: next(place for place, is_end in enumerate(ends) if is_end)]
    return any(unit not in tags for unit in inside)


def place_by_alignment(
    jobs: Sequence[Job], nearest: Callable[[list[str], list[str]], Sequence[Nearest]]
) -> list[Draft]:
    """Returns each translation with its slots, beside the words that belong to the source's.

    `nearest` aligns the pieces of each source and translation without slots. A word is marked
    if any of its pieces is; a tag and its partner stand around all words that belong to those
    between them.
    """
    drafts = []
    found = nearest([job.bare for job in jobs], [job.translation for job in jobs])
    for job, aligned in zip(jobs, found, strict=True):
        draft, first = Draft.begun(job)
        wanted = _wanted(job, aligned)
        left = [n for n in job.waiting if SLOTS[n] not in draft.units]
        while left:
            words = np.cumsum([0, *(unit not in SLOTS for unit in draft.units)]).tolist()
            far = {p: abs(n - wanted[left[0]]) for p, n in enumerate(words) if p >= first}
            likely = {place: place / 1000 - each for place, each in far.items()}
            draft = _best(job, draft, left[0], left, likely)
            del left[0]
        drafts.append(draft)
    return drafts


def _wanted(job: Job, found: Nearest) -> dict[int, int]:
    """Returns before which word or mark of the translation each slot belongs."""
    source, target = Draft.of(job.bare).units, Draft.of(job.translation).units
    ends, closing = np.cumsum([0, *map(len, source)]), job.closing()
    near, there = (
        _units_of(units, pieces)
        for units, pieces in ((source, found.source), (target, found.target))
    )
    links = [
        (near[number], unit) for number, unit in zip(found.nearest, there, strict=False)
        if 0 <= number < len(near) and near[number] < len(source) and unit < len(target)
        and source[near[number]][0].isalnum() == target[unit][0].isalnum()
    ]  # fmt: skip
    wanted: dict[int, int] = {}
    for number in job.waiting:
        read = len(job.between("", SLOTS[number]))
        other = closing.get(number, number)
        last = np.searchsorted(ends, len(job.between("", SLOTS[other])))
        inside = range(np.searchsorted(ends, read + 1) - 1, last)
        marked = [unit for one, unit in links if one in inside]
        if number in wanted:
            continue
        if other != number and marked:
            wanted |= {number: min(marked), other: max(marked) + 1}
            continue
        place = int(np.searchsorted(ends, read))
        before = [unit + 1 for one, unit in links if one == place - 1]
        behind = [unit for one, unit in links if one == place]
        guess = len(target) * place // max(len(source), 1)
        wanted[number] = max(before) if before else min(behind, default=guess)
        if place in (0, len(source)):
            wanted[number] = len(target) if place else 0
        wanted.setdefault(other, wanted[number])
    return wanted


def _units_of(units: Sequence[str], pieces: Sequence[str]) -> list[int]:
    """Returns the unit that each piece begins in."""
    sizes = [len(piece.replace(SPACE_PIECE, "")) for piece in pieces]
    ends = np.cumsum([len(unit) for unit in units])
    return np.searchsorted(ends, np.cumsum([0, *sizes])[:-1], side="right").tolist()
