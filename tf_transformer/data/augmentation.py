"""Training examples of joined pairs, and of pairs in capitals, title case or unmarked.

A model that has only seen single sentences translates the first one of a paragraph. Here each
pair of an epoch begins an example: usually itself, or with probability `data.join` also those
that follow it, and with probability `data.caps` all of them in another form. Pieces never cross
a space, so the ids of a joined text are those of its sentences. Forms are encoded once:

    order of the pairs   7  2  5  0        counts  1  2  1  1       forms  0  0  0  1
    examples             7, 2 with 5, 5, 0 in capitals
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from tf_transformer.config import DataConfig
from tf_transformer.data.text import ParallelText

MOST_JOINED = 8  # pairs in an example
# Forms of a pair. In the encoding of all forms, form f of pair p has the index f * pairs + p.
AS_IT_IS, CAPITALS, TITLE_CASE, UNMARKED = FORMS = range(4)
_FIRST_LETTER = re.compile(r"(?<![\w'’])\w")  # not the t of "don't"
_CASES = str, str.upper, lambda text: _FIRST_LETTER.sub(lambda first: first[0].title(), text)
_FINAL_MARKS = ".!?…。！？।؟"


def in_form(text: str, form: int, symbols: Sequence[str] = ()) -> str:
    """Returns a sentence in another form; case changes leave symbols as they are."""
    if form == UNMARKED:
        return text.rstrip().rstrip(_FINAL_MARKS).rstrip() or text
    by_length = sorted(symbols, key=len, reverse=True)
    parts = re.split(f"({'|'.join(map(re.escape, by_length))})", text) if symbols else [text]
    parts[::2] = map(_CASES[form], parts[::2])
    return "".join(parts)


def pairs_in_form(
    text: ParallelText, form: int, symbols: Sequence[str]
) -> Iterator[tuple[str, ...]]:
    """Yields four strings: each pair, and the pair in a form; sources have the tag."""
    for pair in text.plain_pairs():
        source, target = (in_form(side, form, symbols) for side in pair)
        yield text.tagged(pair[0]), pair[1], text.tagged(source), target


@dataclass(frozen=True)
class Examples:
    """Examples of an epoch; example i begins with the i-th of `pairs`."""

    pairs: np.ndarray  # int64 [examples], indices of pairs in the encoding of all forms
    counts: np.ndarray  # [examples], number of pairs in each
    shifts: np.ndarray  # int64 [examples], from a pair to its form in the example
    lengths: np.ndarray  # int [sides, examples], in tokens with EOS

    def indices(self, examples: np.ndarray) -> np.ndarray:
        """Returns the pairs of examples, int64 [len(examples), MOST_JOINED]; -1 for none."""
        places = examples[:, np.newaxis] + np.arange(MOST_JOINED)
        indices = self.pairs.take(places, mode="clip") + self.shifts[examples, np.newaxis]
        return np.where(np.arange(MOST_JOINED) < self.counts[examples, np.newaxis], indices, -1)


class Augmentation:
    """Draws the examples of an epoch, by `data.join`, `data.join_order` and `data.caps`.

    Only pairs of the same text are joined: half of the joined examples have two, a quarter
    three, and so on up to `MOST_JOINED`, unless the text ends or an example becomes too long.
    `sizes` are the numbers of pairs of each text, and `tags` those of ids of its tag, which
    only the first source of an example has.
    """

    def __init__(self, data: DataConfig, sizes: Sequence[int], tags: Sequence[int]) -> None:
        self.num_pairs = sum(sizes)  # in one form
        self._ends, self._tags = np.cumsum(sizes), np.array(tags)
        self._join, self._caps = data.join, data.caps
        self._in_order = data.join_order == "file" and not data.mix

    def _text_of(self, indices: np.ndarray) -> np.ndarray:
        return np.searchsorted(self._ends, indices % self.num_pairs, side="right")

    def tags(self, indices: np.ndarray) -> np.ndarray:
        """Returns the tag's length of each example, int [B], given its pairs [B, N]."""
        return self._tags[self._text_of(indices[:, 0])]

    def draw(
        self, pairs: np.ndarray, lengths: np.ndarray, limits: np.ndarray, rng: Generator
    ) -> Examples:
        """Draws as many examples as an epoch has pairs, ascending in the order of the file.

        `lengths`, int [sides, indices], are those of the encoding of all forms, source first,
        and `limits`, int [sides, 1], of the longest joined example; both count EOS.
        """
        pairs = pairs if self._in_order else rng.permutation(pairs)
        pairs = pairs[np.argsort(self._text_of(pairs), kind="stable")]
        texts, number = self._text_of(pairs), len(pairs)
        room = np.searchsorted(texts, texts, side="right") - np.arange(number)
        wanted = np.minimum(1 + rng.geometric(0.5, number), np.minimum(room, MOST_JOINED))
        wanted[rng.random(number) >= self._join] = 1
        forms = rng.integers(1, len(FORMS), number)
        shifts = np.where(rng.random(number) < self._caps, forms * self.num_pairs, 0)
        counts = np.ones(number, np.int8)
        totals = lengths[:, pairs + shifts]
        for count in range(1, MOST_JOINED):
            growing = np.flatnonzero((counts == count) & (wanted > count))
            added = pairs[growing + count] + shifts[growing]
            longer = totals[:, growing] + lengths[:, added] - 1
            longer[0] -= self._tags[texts[growing]]
            fit = np.all(longer <= limits, axis=0)
            counts[growing[fit]] += 1
            totals[:, growing[fit]] = longer[:, fit]
        return Examples(pairs, counts, shifts, totals)
