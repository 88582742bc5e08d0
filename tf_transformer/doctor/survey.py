"""Survey of parallel text for the checks, in one pass and bounded memory."""

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from tf_transformer.config import DataConfig
from tf_transformer.data.text import ParallelText, Reservoir, SideName, corpora

SAMPLE_PAIRS = 100_000  # pairs of a split held in memory
PROGRESS_EVERY = 10_000

Progress = Callable[[str, int], None]
Key = str | tuple[str, str]  # a source sentence, or a pair


class Pair(NamedTuple):
    """A sentence pair and its index in the split, from 0."""

    source: str
    target: str
    number: int

    def text(self, side: SideName) -> str:
        """Returns the sentence of one side."""
        return self.source if side == "source" else self.target

    @property
    def keys(self) -> tuple[str, tuple[str, str]]:
        """The source and the pair, by which other splits are searched for them."""
        source = self.source.strip()
        return source, (source, self.target.strip())


@dataclass
class Survey:
    """Sample of a split.

    Attributes:
        name: "train", "dev" or "test".
        corpora: the texts of the split.
        files: the user's files, if the corpora were made from files of another form.
        every: only every `every`-th pair of the files was examined.
        pairs: number of examined pairs.
        sample: a uniform sample of these in order, or all if they are few.
        shared: keys of examined pairs that the samples of other splits have too.
    """

    name: str
    corpora: Sequence[ParallelText]
    files: Sequence[str] = ()
    every: int = 1
    pairs: int = 0
    sample: Reservoir[Pair] = field(default_factory=lambda: Reservoir(SAMPLE_PAIRS))
    shared: set[Key] = field(default_factory=set)
    _starts: list[int] = field(default_factory=list)

    def texts(self, side: SideName) -> list[str]:
        """Returns one side of the sample."""
        return [pair.text(side) for pair in self.sample]

    def location(self, index: int, side: SideName = "source") -> str:
        """Formats the location of a pair as FILE:LINE, or "FILE, pair N", for messages."""
        corpus = bisect_right(self._starts, index) - 1
        number = index - self._starts[corpus] + 1
        if self.files:
            return f"{self.files[corpus]}, pair {number}"
        return f"{self.corpora[corpus].file(side)}:{number}"

    def read(self, progress: Progress, wanted: Set[Key] = frozenset()) -> None:
        """Reads the corpora, without tags; `shared` becomes the keys that are `wanted`."""
        read = 0
        for corpus in self.corpora:
            self._starts.append(read)
            for index, pair in enumerate(corpus.plain_pairs(), read):
                read = index + 1
                if index % self.every == 0:
                    self._examine(Pair(*pair, index), wanted)
                if read % PROGRESS_EVERY == 0:
                    progress(f"reading {self.name}", read)
        self.sample.sort(key=lambda pair: pair.number)

    def _examine(self, pair: Pair, wanted: Set[Key]) -> None:
        if wanted:
            self.shared.update(key for key in pair.keys if key in wanted)
        self.sample.offer(pair)
        self.pairs += 1


def take_surveys(
    texts: Mapping[str, Sequence[str]],
    data: DataConfig,
    files: Mapping[str, Sequence[str]] | None = None,
    *,
    every: int = 1,
    progress: Progress = lambda step, done: None,
) -> list[Survey]:
    """Reads the text of each split once, and the training text last.

    Args:
        texts: names of corpora for "train", first, and for "dev" and "test"; a split without
            any is left out.
        data: settings of the corpora.
        files: see `Survey`; by split.
        every: examine only every `every`-th training pair.
        progress: called with the name of the current step and the number of pairs read.

    Raises:
        UserError: see `corpora` and `ParallelText.plain_pairs`.
    """
    train, *others = surveys = [
        Survey(name, corpora(names, data), files[name] if files else ())
        for name, names in texts.items()
        if names
    ]
    train.every = every
    for other in others:
        other.read(progress)
    keys = {key for other in others for pair in other.sample for key in pair.keys}
    train.read(progress, keys)
    return surveys
