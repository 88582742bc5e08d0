"""Survey of parallel text for the checks, in one pass and bounded memory."""

import hashlib
import random
from array import array
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from tf_transformer.data.corpora import ParallelText
from tf_transformer.data.corpus import SideName
from tf_transformer.doctor.findings import Count

SAMPLE_PAIRS = 100_000  # pairs held in memory
HASHES = 2**23  # hashes of source sentences, and as many of pairs: 256 MiB with their indices
PROGRESS_EVERY = 10_000


class Pair(NamedTuple):
    """A sentence pair and its index in the split, from 0."""

    source: str
    target: str
    number: int

    def text(self, side: SideName) -> str:
        """Returns the sentence of one side."""
        return self.source if side == "source" else self.target


class Hashes:
    """64-bit hashes of at most `limit` sentences, with their indices.

    Beyond the limit, only hashes divisible by `every`, a power of two, are kept. Thus all
    copies of a sentence are kept or none, and the hashes of two splits can be compared.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.every = 1
        self._hashes, self._numbers = array("Q"), array("Q")

    def add(self, text: str, number: int) -> None:
        """Adds a sentence and its index."""
        digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
        value = int.from_bytes(digest, "little")
        if value % self.every == 0:
            self._hashes.append(value)
            self._numbers.append(number)
        while len(self._hashes) > self.limit:
            self.every *= 2
            hashes, numbers = self.kept(self.every)
            self._hashes, self._numbers = array("Q", hashes), array("Q", numbers)

    def kept(self, every: int) -> tuple[np.ndarray, np.ndarray]:
        """Returns the hashes divisible by `every`, and their indices: uint64 [N] each."""
        hashes = np.frombuffer(self._hashes.tobytes(), np.uint64)
        chosen = hashes % np.uint64(every) == 0
        return hashes[chosen], np.frombuffer(self._numbers.tobytes(), np.uint64)[chosen]


@dataclass
class Survey:
    """Sample of a split, and hashes of its sentences and pairs.

    Attributes:
        name: "train", "dev" or "test".
        every: only every `every`-th pair of the files was examined.
        sources, both: hashes of the source sentences, and of the pairs.
        pairs: number of examined pairs.
        sample: a uniform sample of these in order, or all if they are few.
        corpora: the texts of the split.
        files: the user's files, if the corpora were made from files of another form.
    """

    name: str
    every: int
    sources: Hashes
    both: Hashes
    pairs: int = 0
    sample: list[Pair] = field(default_factory=list)
    corpora: list[ParallelText] = field(default_factory=list)
    files: Sequence[str] = ()
    _starts: list[int] = field(default_factory=list)

    def texts(self, side: SideName) -> list[str]:
        """Returns one side of the sample."""
        return [pair.text(side) for pair in self.sample]

    def corpus_of(self, index: int) -> int:
        """Returns the index of the corpus that contains pair `index`."""
        return bisect_right(self._starts, index) - 1

    def location(self, index: int, side: SideName = "source") -> str:
        """Formats the location of a pair as FILE:LINE, or "FILE, pair N", for messages."""
        corpus = self.corpus_of(index)
        number = index - self._starts[corpus] + 1
        if self.files:
            return f"{self.files[corpus]}, pair {number}"
        return f"{self.corpora[corpus].file(side)}:{number}"

    def count(
        self, bad: Sequence[int] | np.ndarray, total: int, unit: str, side: SideName = "source"
    ) -> Count:
        """Counts the pairs `bad` out of `total`, and locates the first of them on `side`."""
        first = self.location(int(bad[0]), side) if len(bad) else ""
        return Count(len(bad), total, f"{unit} of {self.name}", first)


def take_survey(
    name: str,
    corpora: Sequence[ParallelText],
    *,
    every: int = 1,
    sample_pairs: int = SAMPLE_PAIRS,
    hashes: int = HASHES,
    progress: Callable[[int], None] | None = None,
) -> Survey:
    """Reads corpora once, without tags, in bounded memory.

    Args:
        name: name of the split, for messages.
        corpora: one or more texts.
        every: examine only every `every`-th pair.
        sample_pairs: maximum number of pairs to keep.
        hashes: maximum number of hashes to keep.
        progress: called with the number of pairs read so far.

    Raises:
        UserError: see `ParallelText.plain_pairs`.
    """
    survey = Survey(name, every, Hashes(hashes), Hashes(hashes))
    rng, read = random.Random(1), 0
    for corpus in corpora:
        survey.corpora.append(corpus)
        survey._starts.append(read)
        for index, pair in enumerate(corpus.plain_pairs(), read):
            read = index + 1
            if index % every == 0:
                _examine(survey, Pair(*pair, index), sample_pairs, rng)
            if progress is not None and read % PROGRESS_EVERY == 0:
                progress(read)
    survey.sample.sort(key=lambda pair: pair.number)
    return survey


def _examine(survey: Survey, pair: Pair, sample_pairs: int, rng: random.Random) -> None:
    source, target = pair.source.strip(), pair.target.strip()
    survey.sources.add(source, pair.number)
    survey.both.add(f"{source}\n{target}", pair.number)
    # Reservoir sampling: Vitter (1985), algorithm R.
    if survey.pairs < sample_pairs:
        survey.sample.append(pair)
    elif (slot := int(rng.random() * (survey.pairs + 1))) < sample_pairs:
        survey.sample[slot] = pair
    survey.pairs += 1
