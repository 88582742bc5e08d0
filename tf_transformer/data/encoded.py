"""A tokenised parallel corpus on disk, memory-mapped so that it may be larger than memory."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.corpus import SIDES
from tf_transformer.data.corpus_info import INFO_FILE, read_info, write_info
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.errors import UserError
from tf_transformer.files import replacing_folder

CHUNK_PAIRS = 2048  # tokenised at once, by all cores
COUNTED_IDS = 2**20  # at once; NumPy makes int64 of them
COUNTS = ("read", "kept", "empty", "too_long", "ratio")


@dataclass(frozen=True)
class FilterReport:
    """Numbers of pairs read, kept, and dropped by reason (the first that applies).

    `cut` counts those whose end was cut off, if that is done in place of dropping.
    """

    read: int
    kept: int
    empty: int
    too_long: int
    ratio: int
    max_length: int
    max_ratio: float
    cut: int = 0

    def summary(self) -> str:
        """Formats a line such as "9 pairs read, 8 kept; dropped: 1 empty"."""
        reasons = {
            f"{self.empty:,} empty": self.empty,
            f"{self.too_long:,} longer than {self.max_length} tokens": self.too_long,
            f"{self.ratio:,} with a length ratio above {self.max_ratio:g}": self.ratio,
        }
        dropped = ", ".join(reason for reason, count in reasons.items() if count)
        kept = f"{self.read:,} pairs read, {self.kept:,} kept"
        kept += f"; {self.cut:,} cut to {self.max_length} tokens" if self.cut else ""
        return f"{kept}; dropped: {dropped}" if dropped else kept


class Side:
    """Sentences of one language: flat ids, each sentence a slice of them."""

    def __init__(self, directory: Path, name: str, dtype: str):
        self.lengths = np.load(directory / f"{name}_lengths.npy")
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        # A plain view: indexing the np.memmap class itself is slower.
        self.ids = np.asarray(np.memmap(directory / f"{name}_ids.bin", dtype, mode="r"))
        if len(self.ids) != self.offsets[-1]:
            raise ValueError(f"{name}: {len(self.ids)} ids instead of {self.offsets[-1]}")

    def sentence(self, index: int) -> np.ndarray:
        """Returns the int32 ids of a sentence."""
        start = self.offsets[index]
        return self.ids[start : start + self.lengths[index]].astype(np.int32)

    def padded(self, rows: np.ndarray, length: int) -> np.ndarray:
        """Returns sentences as int32 [len(rows), length], padded with PAD."""
        if (longest := self.lengths[rows].max(initial=0)) > length:
            raise ValueError(f"`length` must be at least {longest}. Received: {length}.")
        columns = np.arange(length)
        real = columns < self.lengths[rows, np.newaxis]  # [rows, length]
        positions = self.offsets[rows, np.newaxis] + columns
        result = np.full(real.shape, PAD_ID, np.int32)
        result[real] = self.ids[positions[real]]
        return result


class EncodedCorpus:
    """Sentence pairs as ids, each side ending in EOS; made by `encode_corpus`.

    Attributes:
        source_lengths, target_lengths: int32 [pairs], in tokens with EOS.
        report: what the filters kept and dropped.
        fingerprint: name of what it was made from.
        text_sides: the sides that are text.
    """

    text_sides = SIDES

    def __init__(self, source: Side, target: Side, report: FilterReport, fingerprint: str):
        self._sides = {"source": source, "target": target}
        self.source_lengths = source.lengths
        self.target_lengths = target.lengths
        self.report = report
        self.fingerprint = fingerprint

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Maps the corpus in `directory`, after checking its checksums; see `read_info`.

        Raises:
            UserError: if it is missing or damaged.
        """
        try:
            info = read_info(directory)
            sides = [Side(directory, name, info["dtype"]) for name in SIDES]
            return cls(*sides, FilterReport(**info["report"]), str(info["fingerprint"]))
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{directory} holds no complete encoded corpus: {error}. Encode the text again."
            ) from None

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, index: int) -> np.ndarray:
        """Returns the int32 ids of source sentence `index`, with EOS."""
        return self._sides["source"].sentence(index)

    def target(self, index: int) -> np.ndarray:
        """Returns the int32 ids of target sentence `index`, with EOS."""
        return self._sides["target"].sentence(index)

    def padded(
        self, side: Literal["source", "target"], rows: np.ndarray, length: int
    ) -> np.ndarray:
        """Returns sentences of a side as int32 [len(rows), length], padded with PAD."""
        return self._sides[side].padded(rows, length)

    def piece_counts(self, vocab_size: int) -> np.ndarray:
        """Counts each id on all sides of text together: int64 [V]."""
        counts = np.zeros(vocab_size, np.int64)
        for side in map(self._sides.get, self.text_sides):
            for start in range(0, len(side.ids), COUNTED_IDS):
                ids = side.ids[start : start + COUNTED_IDS]
                counts += np.bincount(ids, minlength=vocab_size)
        return counts


def id_dtype(size: int) -> str:
    """Returns the type on disk of ids below `size`."""
    return "<u2" if size <= 2**16 else "<i4"


class SideWriter:
    """Appends tokenised sentences to the files that `Side` reads."""

    def __init__(self, directory: Path, name: str, dtype: str):
        self._ids_path = directory / f"{name}_ids.bin"
        self._lengths_path = directory / f"{name}_lengths.npy"
        self._dtype = dtype
        self._lengths: list[np.ndarray] = []

    def append(self, ids: np.ndarray, lengths: np.ndarray, keep: np.ndarray) -> None:
        """Adds the sentences chosen by `keep` [B]; `ids` holds all of them in a row."""
        with self._ids_path.open("ab") as file:
            file.write(ids[np.repeat(keep, lengths)].astype(self._dtype).tobytes())
        self._lengths.append(lengths[keep])

    def finish(self) -> None:
        """Writes the lengths, after the last sentence."""
        np.save(self._lengths_path, np.concatenate(self._lengths))


def encode_corpus(
    pairs: Iterable[tuple[str, str]],
    tokenizer: Tokenizer,
    directory: Path,
    *,
    max_length: int,
    max_ratio: float,
    fingerprint: str = "",
    progress: Callable[[int], None] | None = None,
) -> EncodedCorpus:
    """Tokenises and filters `pairs` into `directory`, which appears whole or not at all.

    Args:
        pairs: source and target sentences.
        tokenizer: for both sides.
        directory: the folder to write; an older corpus there is replaced.
        max_length: limit of either side, in tokens with EOS.
        max_ratio: limit of the longer to the shorter side, in tokens with EOS.
        fingerprint: kept with the corpus, for the caller to compare.
        progress: called with the number of pairs done so far.

    Raises:
        UserError: if no pair is left or the disk is full.
    """
    if directory.exists() and not (directory / INFO_FILE).is_file():
        raise UserError(f"{directory} must be new or an encoded corpus. Received: neither.")
    with replacing_folder(directory) as temporary:
        dtype = id_dtype(tokenizer.vocab_size)
        sides = [SideWriter(temporary, name, dtype) for name in SIDES]
        counts: Counter[str] = Counter()
        pairs = iter(pairs)
        while chunk := list(itertools.islice(pairs, CHUNK_PAIRS)):
            counts.update(_append(sides, tokenizer, chunk, max_length, max_ratio))
            if progress is not None:
                progress(counts["read"])
        numbers = {name: counts[name] for name in COUNTS}
        report = FilterReport(**numbers, max_length=max_length, max_ratio=max_ratio)
        if not report.kept:
            raise UserError(f"The corpus has no usable pair: {report.summary()}.")
        for side in sides:
            side.finish()
        write_info(temporary, describe(dtype, fingerprint, report))
    return EncodedCorpus.open(directory)


def _append(
    sides: list[SideWriter],
    tokenizer: Tokenizer,
    pairs: list[tuple[str, str]],
    max_length: int,
    max_ratio: float,
) -> dict[str, int]:
    """Writes the usable ones of `pairs`; returns the counts of a `FilterReport`."""
    sources, targets = zip(*pairs, strict=True)
    encoded = [
        token_ids(tokenizer.tokenize, sources),
        token_ids(tokenizer.tokenize_target, targets),
    ]
    (_, source_lengths), (_, target_lengths) = encoded
    chosen = _drop(source_lengths, target_lengths, max_length, max_ratio)
    chosen["kept"] = ~np.any(list(chosen.values()), axis=0)
    for side, (ids, lengths) in zip(sides, encoded, strict=True):
        side.append(ids, lengths, chosen["kept"])
    return {"read": len(pairs)} | {name: int(rows.sum()) for name, rows in chosen.items()}


def describe(dtype: str, fingerprint: str, report: FilterReport) -> dict[str, Any]:
    """Describes an encoded corpus for `corpus_info`."""
    return {"dtype": dtype, "fingerprint": fingerprint, "report": dataclasses.asdict(report)}


def token_ids(
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor], texts: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the ids of `texts` in a row, EOS after each, and their lengths [B]."""
    ends = tf.fill([len(texts), 1], EOS_ID)
    ids = tf.concat([tokenize(tf.constant(texts)), ends], axis=1)
    return ids.values.numpy(), ids.row_lengths().numpy().astype(np.int32)


def _drop(
    source: np.ndarray, target: np.ndarray, max_length: int, max_ratio: float
) -> dict[str, np.ndarray]:
    """Pairs dropped for each reason, one reason a pair: boolean [B] from lengths [B]."""
    shorter, longer = np.minimum(source, target), np.maximum(source, target)
    empty = shorter == 1  # EOS alone
    too_long = ~empty & (longer > max_length)
    ratio = ~empty & ~too_long & (longer > max_ratio * shorter)
    return {"empty": empty, "too_long": too_long, "ratio": ratio}
