"""Slots in training: what belongs together in a pair becomes `<1>` to `<9>` on both sides.

    A dog barks at Tom.      ->   A dog<2> barks at <4>.
    Ein Hund bellt Tom an.   ->   Ein <2> bellt <4> an.

So the model learns to translate around what `protection` keeps. A term of a glossary stays in
the source, each word with its slot, so that the model knows what the words around it must agree
with. Words stay on both sides between two slots that stand for an opening and a closing tag, or
before one that stands for a number or the like. All is a function of seed, step and pair.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

import numpy as np

from tf_transformer.base.files import new_folder
from tf_transformer.config import PAD_ID, SLOTS
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.text import SIDES, SideName
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import SPACE_PIECE
from tf_transformer.terms.alignment_model import AlignedSpans, mined_spans

logger = logging.getLogger(__name__)

_VERSION = "2"  # of what is mined
_WORDS = 3  # in a span at most
_USUAL, _OFTEN = 4, 0.9  # spans of a pair at most, in this share of the pairs
_AROUND = ((0, 1), (1, 0), (1, 1), (1, 1), (0, 2))  # slots before and after words that stay
# Probabilities that words which do not stay become a slot on both sides, and a term. Few do
# the first, unless they are equal on both sides, as names are: a model for which a slot is any
# word leaves out words beside it.
_REPLACED, _TERM, _EQUAL = 0.05, 0.35, 0.5
_IN_ORDER = 0.75  # probability that a pair has the first slots, as texts to translate do


class _Edit(NamedTuple):
    """A change of words that follow each other on both sides."""

    words: list[list[int]]  # rows of `AlignedSpans`
    kind: str  # "replaced", "term" or "around"
    before: int  # slots before words that stay
    slots: list[int]  # from 0


class SlotSampler:
    """Puts slots into the sentences of an encoded corpus.

    Args:
        corpus: the pairs.
        starts, spans: what belongs together in each pair, see `mined_spans`.
        tokenizer: one whose vocabulary has slots.
        rate: probability that a pair gets slots.
        seed: determines which pairs and words.
    """

    def __init__(
        self,
        corpus: EncodedCorpus,
        starts: np.ndarray,
        spans: AlignedSpans,
        tokenizer: Tokenizer,
        rate: float,
        seed: int,
    ) -> None:
        self._corpus, self._starts, self._spans = corpus, starts, spans
        self._rate, self._seed = rate, seed
        self._slots = {side: tokenizer.slots(side).tolist() for side in SIDES}
        self._spaced = {
            side: [piece.startswith(SPACE_PIECE) for piece in tokenizer.vocabulary(side)]
            for side in SIDES
        }
        self._joins = [piece[-1:].isalnum() for piece in tokenizer.vocabulary()]

    @classmethod
    def mined(
        cls,
        corpus: EncodedCorpus,
        tokenizer: Tokenizer,
        folder: Path,
        rate: float,
        seed: int,
        progress: Callable[[int], None] | None = None,
    ) -> Self:
        """Mines a corpus into `folder`, unless its spans are there; see the constructor."""
        made_from = f"{_VERSION} {corpus.fingerprint}"
        note, names = folder / "made_from.txt", ("starts", "spans")
        found = note.read_text("utf-8") if note.is_file() else ""
        if found.partition(" ")[0] not in ("", _VERSION):
            logger.warning("slots stand elsewhere than in 1.1.0: not bit for bit as there")
        if found != made_from:
            arrays = mined_spans(corpus, tokenizer.models, progress)
            with new_folder(folder, replaces=True) as temporary:
                for name, array in zip(names, arrays, strict=True):
                    np.save(temporary / f"{name}.npy", array)
                (temporary / note.name).write_text(made_from, "utf-8")
        starts, spans = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in names)
        if not len(spans):
            logger.warning("data.slots has no effect: no words of the pairs could be aligned")
        return cls(corpus, starts, spans, tokenizer, rate, seed)

    def summary(self) -> str:
        """Describes in a line how many words can become slots."""
        mean = len(self._spans) / len(self._corpus)
        return f"slots: {mean:.1f} aligned words a pair, slots in {self._rate:.0%} of the pairs"

    def put(
        self,
        side: SideName,
        rows: np.ndarray,
        indices: np.ndarray,
        step: int,
        tags: np.ndarray | int = 0,
    ) -> np.ndarray:
        """Returns the padded sentences of a batch with slots; see `EncodedCorpus.padded`."""
        result, place, slots = rows.copy(), SIDES.index(side), self._slots[side]
        examples = indices.reshape(len(indices), -1)
        left_out = np.broadcast_to(tags, len(indices)).tolist()
        for row, pairs, tag in zip(result, examples, left_out, strict=True):
            # Edits go from the end to the start, so that the places of those before hold.
            edits = self._edits(pairs[pairs >= 0].tolist(), tag, step, len(row))
            ids = row[row != PAD_ID].tolist()
            for edit in sorted(edits, key=lambda edit: -edit.words[0][2 * place]):
                start, end = edit.words[0][2 * place], edit.words[-1][2 * place + 1]
                if edit.kind == "term" and side == "source":
                    for word in reversed(edit.words):
                        ids.insert(word[1], slots[edit.slots[0]][0])
                    continue
                spaced = self._spaced[side][ids[start]]
                if side == "source":  # a slot that touches a word stands for it
                    spaced |= start > 0 and self._joins[ids[start - 1]]
                new = [slots[slot][spaced] for slot in edit.slots]
                stay = ids[start:end] if edit.kind == "around" else []
                ids[start:end] = [*new[: edit.before], *stay, *new[edit.before :]]
            row[: len(ids)], row[len(ids) :] = ids, PAD_ID
        return result

    def _edits(self, pairs: list[int], tag: int, step: int, length: int) -> list[_Edit]:
        """Draws the edits of an example, joined of `pairs`, in a batch of this length.

        The draw of the picture above, whose aligned words are A-Ein, dog-Hund, barks-bellt and
        Tom-Tom, of `_rate` of the pairs one that gets slots:

        1. Of at most 4 words (_USUAL, _OFTEN), 2 are wanted: Tom and dog, in the order drawn.
        2. Tom may take along words that touch it on both sides, but is the last. Since it is
           equal on both sides, it is "replaced" in half of the draws (_EQUAL): by one slot.
        3. dog is drawn to have one word, although barks touches it. 0.2 is between _REPLACED
           and _REPLACED + _TERM, so it is a "term": the source keeps the word and gets the slot
           after it, which takes one id of the room in the row; the target has the slot alone.
        4. In a quarter of the draws (_IN_ORDER) the 2 slots are any of the 9: here <2> and <4>,
           which stand in the order of the source.

        With 0.7, dog would be "around": with (1, 1) of _AROUND <2>dog<3> and <2>Hund<3>.
        """
        random = Random(f"{self._seed} {step} {pairs[0]}")
        if random.random() >= self._rate:
            return []
        words, room = self._words(pairs, tag, length)
        for side in SIDES:  # a text that has what looks like a slot stays as it is
            if np.isin(self._corpus.flat(side, np.array(pairs))[0], self._slots[side]).any():
                return []
        most = _USUAL if random.random() < _OFTEN else len(SLOTS)
        wanted = min(random.randint(1, most), len(words))
        chosen: list[tuple[int, int, str, int, int]] = []  # first and last word, see `_Edit`
        taken: set[int] = set()
        total = 0
        for first in random.sample(range(len(words)), wanted):
            size, last = random.randint(1, _WORDS), first
            kind, before, number = _kind(words[first], random)
            # Words that follow on both sides come along.
            while last - first + 1 < size and _touch(words, last) and last + 1 not in taken:
                last += 1
            # At most so many ids more: a slot beside each word of a term, or around words.
            added = {"replaced": 0, "term": last - first + 1, "around": number}[kind]
            if first not in taken and total + number <= len(SLOTS) and added <= room:
                taken.update(range(first, last + 1))
                chosen.append((first, last, kind, before, number))
                room -= added
                total += number
        numbers = range(total) if random.random() < _IN_ORDER else range(len(SLOTS))
        slots = iter(sorted(random.sample(numbers, total)))
        return [
            _Edit(words[first : last + 1], kind, before, [next(slots) for _ in range(number)])
            for first, last, kind, before, number in sorted(chosen)
        ]

    def _words(self, pairs: list[int], tag: int, length: int) -> tuple[list[list[int]], int]:
        """Returns what belongs together in an example, and how many ids its batch has left."""
        words: list[list[int]] = []
        sizes = [1, 1]  # of the joined sides, with EOS
        for number, pair in enumerate(pairs):
            # A joined pair begins where the one before has EOS, and its source without the tag.
            left_out = [tag if number else 0, 0]
            shifts = [size - 1 - out for size, out in zip(sizes, left_out, strict=True)]
            spans = self._spans[self._starts[pair] : self._starts[pair + 1]].astype(int)
            spans = spans[spans[:, 0] >= left_out[0]]
            spans[:, :2] += shifts[0]
            spans[:, 2:4] += shifts[1]
            words += spans.tolist()
            for place, side in enumerate(SIDES):
                sizes[place] = int(self._corpus.lengths(side)[pair]) + shifts[place]
        return words, length - max(sizes)


def _kind(word: list[int], random: Random) -> tuple[str, int, int]:
    """Draws what happens to words from this one on, slots before them, and slots in all."""
    is_spaced, is_equal = word[4] & 1, word[4] & 2
    drawn = random.random()
    if drawn < (_EQUAL if is_equal else _REPLACED):
        return "replaced", 0, 1
    if not is_spaced or (not is_equal and drawn < _REPLACED + _TERM):
        return "term", 0, 1
    before, after = random.choice(_AROUND)
    return "around", before, before + after


def _touch(words: list[list[int]], index: int) -> bool:
    """Tells whether the next word follows a word on both sides, with nothing between them."""
    if index + 1 == len(words):
        return False
    (_, source, _, target, _), (other, _, another, *_) = words[index : index + 2]
    return source == other and target == another
