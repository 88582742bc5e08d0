"""The work of a decoding contender: batches of sentences and their outputs."""

import json
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

PAD, UNK, BOS, EOS = 0, 1, 2, 3

Rows = list[list[int]]


class Work:
    """A folder written by `contenders/decoding_work.py`.

    Attributes:
        folder: its path.
        model: arguments of `Transformer`.
        sentences: ids without EOS, shortest first.
    """

    def __init__(self, folder: str) -> None:
        self.folder = Path(folder)
        self.model = self._read("model.json")
        self.sentences = self._read("sentences.json")

    def _read(self, name: str):
        return json.loads((self.folder / name).read_text("utf-8"))

    def pieces(self) -> list[str]:
        """Returns the pieces of the vocabulary, by id."""
        return self._read("pieces.json")

    def batches(self, batch: int, number: int) -> Iterator[Rows]:
        """Returns `number` batches of sentences of similar length, evenly spaced over all."""
        last = len(self.sentences) - batch
        for i in range(number):
            start = round(last * (i + 0.5) / number)
            yield self.sentences[start : start + batch]

    def decode(self, search: Callable[[Rows], Rows], batch: int, number: int) -> dict:
        """Decodes `number` batches; returns the output tokens and each batch's latency."""
        tokens, latencies = 0, []
        for rows in list(self.batches(batch, number)):
            begun = time.perf_counter()
            outputs = search(rows)
            latencies.append(time.perf_counter() - begun)
            tokens += sum(map(len, outputs))
        return {"tokens": tokens, "latencies": latencies}


def evenly_spaced(items: Sequence, number: int) -> list:
    """Returns `number` evenly spaced items, in their order."""
    return [items[int((i + 0.5) * len(items) / number)] for i in range(number)]


def with_eos(rows: Sequence[Sequence[int]]) -> Rows:
    """Returns ids [B, S] with EOS, padded."""
    longest = max(map(len, rows)) + 1
    return [[*row, EOS] + [PAD] * (longest - len(row) - 1) for row in rows]


def up_to_eos(row: Sequence[int]) -> list[int]:
    """Returns the ids before EOS, or all if there is none."""
    row = list(row)
    return row[: row.index(EOS)] if EOS in row else row
