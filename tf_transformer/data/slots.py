"""Slots in training: what belongs together in a pair becomes `<1>` to `<9>` on both sides.

    A dog barks at Tom.      ->   A <2> barks at <4>.
    Ein Hund bellt Tom an.   ->   Ein <2> bellt <4> an.

So the model learns to translate around what `spans` protects. Some words stay, between two
slots that stand for an opening and a closing tag, or before one that stands for a number or the
like. All is a function of seed, step and pair.
"""

import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import NamedTuple, Self

import numpy as np

from tf_transformer.base.files import new_folder
from tf_transformer.config import PAD_ID
from tf_transformer.data.alignment_model import Spans, mined_spans
from tf_transformer.data.encoded_corpus import EncodedCorpus
from tf_transformer.data.spans import SLOTS
from tf_transformer.data.text import SIDES, SideName
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.data.vocabulary import SPACE_PIECE

logger = logging.getLogger(__name__)

_VERSION = "1"  # of what is mined
_WORDS = 3  # in a span at most
_USUAL, _OFTEN = 4, 0.9  # spans of a pair at most, in this share of the pairs
_KINDS = (
    0,
    0,
    1,
    2,
)  # equally probable: slots around words that stay, 0 for one in their place
_IN_ORDER = 0.75  # probability that a pair has the first slots, as texts to translate do


class _Edit(NamedTuple):
    """Words that a slot replaces, or that stay before a slot, or between two."""

    starts: tuple[int, int]  # in the ids of source and target
    ends: tuple[int, int]
    slots: list[int]  # from 0
    stay: bool


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
        spans: Spans,
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
        if not (note.is_file() and note.read_text("utf-8") == made_from):
            arrays = mined_spans(corpus, tokenizer.models, progress)
            shutil.rmtree(folder, ignore_errors=True)
            with new_folder(folder) as temporary:
                for name, array in zip(names, arrays, strict=True):
                    np.save(temporary / f"{name}.npy", array)
                (temporary / note.name).write_text(made_from, "utf-8")
        starts, spans = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in names)
        if not len(spans):
            logger.warning("data.slots has no effect: no words of the pairs could be aligned")
        return cls(corpus, starts, spans, tokenizer, rate, seed)

    def summary(self) -> str:
        """Describes in a line how many words can become slots."""
        found = len(self._spans) / len(self._corpus)
        return (
            f"slots: {found:.1f} aligned words a pair, slots in {self._rate:.0%} of the pairs"
        )

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
            edits = self._edits(pairs[pairs >= 0].tolist(), tag, step, len(row))
            ids = row[row != PAD_ID].tolist()
            for edit in sorted(edits, key=lambda edit: -edit.starts[place]):
                start, end = edit.starts[place], edit.ends[place]
                new = [slots[slot][self._spaced[side][ids[start]]] for slot in edit.slots]
                stay = ids[start:end] if edit.stay else []
                ids[start:end] = [*new[:-1], *stay, new[-1]]
            row[: len(ids)], row[len(ids) :] = ids, PAD_ID
        return result

    def _edits(self, pairs: list[int], tag: int, step: int, length: int) -> list[_Edit]:
        """Draws the edits of an example, joined of `pairs`, in a batch of this length."""
        random = Random(f"{self._seed} {step} {pairs[0]}")
        if random.random() >= self._rate:
            return []
        words, room = self._words(pairs, tag, length)
        if any(self._has_slots(pair) for pair in pairs):
            return []
        most = _USUAL if random.random() < _OFTEN else len(SLOTS)
        wanted = min(random.randint(1, most), len(words))
        chosen: list[tuple[int, int, int]] = []  # first and last word, and of `_KINDS`
        taken: set[int] = set()
        for first in random.sample(range(len(words)), wanted):
            size, kind = random.randint(1, _WORDS), random.choice(_KINDS)
            last = first
            while last - first + 1 < size and _touch(words, last) and last + 1 not in taken:
                last += 1
            kind *= bool(words[first][4]) and room >= kind
            total = sum(max(kind, 1) for *_, kind in chosen)
            if first not in taken and total + max(kind, 1) <= len(SLOTS):
                taken.update(range(first, last + 1))
                chosen.append((first, last, kind))
                room -= kind
        total = sum(max(kind, 1) for *_, kind in chosen)
        numbers = range(total) if random.random() < _IN_ORDER else range(len(SLOTS))
        slots = iter(sorted(random.sample(numbers, total)))
        return [
            _Edit(
                (words[first][0], words[first][2]),
                (words[last][1], words[last][3]),
                [next(slots) for _ in range(max(kind, 1))],
                kind > 0,
            )
            for first, last, kind in sorted(chosen)
        ]

    def _has_slots(self, pair: int) -> bool:
        """Tells whether the text of a pair has what looks like a slot."""
        sides = (self._corpus.source(pair), self._corpus.target(pair))
        both = zip(SIDES, sides, strict=True)
        return any(bool(np.isin(ids, self._slots[side]).any()) for side, ids in both)

    def _words(self, pairs: list[int], tag: int, length: int) -> tuple[list[list[int]], int]:
        """Returns what belongs together in an example, and how many ids its batch has left."""
        words: list[list[int]] = []
        sizes = [1, 1]  # of the joined sides, with EOS
        for number, pair in enumerate(pairs):
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


def _touch(words: list[list[int]], index: int) -> bool:
    """Tells whether the next word follows a word on both sides, with nothing between them."""
    if index + 1 == len(words):
        return False
    (_, source, _, target, _), (other, _, another, *_) = words[index : index + 2]
    return source == other and target == another
