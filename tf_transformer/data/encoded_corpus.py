"""A tokenised parallel corpus on disk, memory-mapped so that it may exceed the memory.

Its metadata hold checksums of its files, and a fingerprint of what it was made from.
"""

import dataclasses
import hashlib
import itertools
import json
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tf_transformer.config import PAD_ID
from tf_transformer.data.text import SIDES, SideName, identity
from tf_transformer.errors import UserError
from tf_transformer.files import replacing_folder, sha256

if TYPE_CHECKING:  # corpora are read without TensorFlow
    from tf_transformer.data.tokenizer import Tokenizer

INFO_FILE = "corpus.json"


@dataclass(frozen=True)
class FilterReport:
    """Numbers of pairs read, kept, and dropped by reason (the first that applies).

    `cut` counts truncated pairs, for encoders that truncate instead of dropping.
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
    """Sentences of one side, as slices of a flat array of ids."""

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
        columns = np.arange(length)
        real = columns < self.lengths[rows, np.newaxis]  # [rows, length]
        positions = self.offsets[rows, np.newaxis] + columns
        result = np.full(real.shape, PAD_ID, np.int32)
        result[real] = self.ids[positions[real]]
        return result


class EncodedCorpus:
    """Sentence pairs as ids, each side ending in EOS; made by `encoding.encode_corpus`.

    Attributes:
        source_lengths, target_lengths: int32 [pairs], in tokens with EOS.
        report: numbers of pairs that the filters kept and dropped.
        fingerprint: hash of what the corpus was made from.
        sizes: number of pairs from each text, in the order of the texts.
        text_sides: the sides that are text.
    """

    text_sides: tuple[SideName, ...] = SIDES

    def __init__(
        self,
        source: Side,
        target: Side,
        report: FilterReport,
        fingerprint: str,
        sizes: Sequence[int],
    ):
        self._sides = {"source": source, "target": target}
        self.source_lengths = source.lengths
        self.target_lengths = target.lengths
        self.report = report
        self.fingerprint = fingerprint
        self.sizes = list(sizes)

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Maps the corpus in `directory`, after checking its checksums; see `read_info`.

        Raises:
            UserError: if it is missing or damaged.
        """
        try:
            info = read_info(directory)
            source, target = (Side(directory, name, info["dtype"]) for name in SIDES)
            report = FilterReport(**info["report"])
            return cls(source, target, report, str(info["fingerprint"]), info["sizes"])
        except (OSError, EOFError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(
                f"{directory} is not a complete encoded corpus: {error}. Encode the text again."
            ) from None

    def __len__(self) -> int:
        return len(self.source_lengths)

    def source(self, index: int) -> np.ndarray:
        """Returns the int32 ids of source sentence `index`, with EOS."""
        return self._sides["source"].sentence(index)

    def target(self, index: int) -> np.ndarray:
        """Returns the int32 ids of target sentence `index`, with EOS."""
        return self._sides["target"].sentence(index)

    def lengths(self, side: SideName) -> np.ndarray:
        """Returns the lengths of a side, int32 [pairs], in tokens with EOS."""
        return self._sides[side].lengths

    def padded(self, side: SideName, rows: np.ndarray, length: int) -> np.ndarray:
        """Returns sentences of a side as int32 [len(rows), length], padded with PAD."""
        return self._sides[side].padded(rows, length)


# --- Metadata ------------------------------------------------------------------------------


def write_info(directory: Path, info: dict[str, Any]) -> None:
    """Writes INFO_FILE, the last file: its presence marks a complete corpus."""
    files = sorted(directory.iterdir())
    info = info | {"checksums": {file.name: sha256(file) for file in files}}
    info["checksum"] = _checksum(info)
    (directory / INFO_FILE).write_text(json.dumps(info, indent=2), encoding="utf-8")


def read_info(directory: Path) -> dict[str, Any]:
    """Reads INFO_FILE and verifies the checksums of all files of the corpus.

    Raises:
        OSError, ValueError, KeyError, TypeError, AttributeError: if a file is missing or
            damaged.
    """
    info = json.loads((directory / INFO_FILE).read_text("utf-8"))
    if info["checksum"] != _checksum(info):
        raise ValueError(f"{INFO_FILE} is damaged")
    for name, recorded in info["checksums"].items():
        if sha256(directory / name) != recorded:
            raise ValueError(f"{name} is damaged")
    return info


def _checksum(info: dict[str, Any]) -> str:
    """Hashes the content of INFO_FILE except this checksum itself."""
    content = {name: value for name, value in info.items() if name != "checksum"}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


def fingerprint(texts: Sequence[Path], models: Iterable[bytes], settings: str) -> str:
    """Returns a hash of the text, the tokenizer's models and the filters."""
    digest = hashlib.sha256(b"".join(models))
    digest.update(f"{identity(texts)} {settings}".encode())
    return digest.hexdigest()


CHUNK_PAIRS = 2048  # tokenised at once, by all cores
COUNTS = ("read", "kept", "empty", "too_long", "ratio", "cut")


def id_dtype(size: int) -> str:
    """Returns the dtype on disk of ids below `size`."""
    return "<u2" if size <= 2**16 else "<i4"


class SideWriter:
    """Appends tokenised sentences to the files that `Side` reads."""

    def __init__(self, directory: Path, name: str, dtype: str):
        self._ids_path = directory / f"{name}_ids.bin"
        self._lengths_path = directory / f"{name}_lengths.npy"
        self._dtype = dtype
        self._lengths: list[np.ndarray] = []

    def append(self, ids: np.ndarray, lengths: np.ndarray, keep: np.ndarray) -> None:
        """Adds the sentences selected by `keep` [B]; `ids` is the concatenation of all B."""
        with self._ids_path.open("ab") as file:
            file.write(ids[np.repeat(keep, lengths)].astype(self._dtype).tobytes())
        self._lengths.append(lengths[keep])

    def finish(self) -> None:
        """Writes the lengths, after the last sentence."""
        np.save(self._lengths_path, np.concatenate(self._lengths))


def encode_corpus(
    texts: Sequence[Iterable[tuple[str, str]]],
    tokenizer: "Tokenizer",
    directory: Path,
    *,
    max_length: int,
    max_ratio: float,
    fingerprint: str = "",
    progress: Callable[[int], None] | None = None,
) -> EncodedCorpus:
    """Tokenises and filters texts into `directory`, which appears whole or not at all.

    Args:
        texts: the (source, target) sentences of each text.
        tokenizer: for both sides.
        directory: the folder to write; an older corpus there is replaced.
        max_length: limit on either side, in tokens with EOS.
        max_ratio: limit on the ratio of the longer to the shorter side, in tokens with EOS.
        fingerprint: stored with the corpus, for the caller to compare.
        progress: called with the number of pairs done so far.

    Raises:
        UserError: if no pair is left, the disk is full, or `directory` holds something else.
    """
    write_corpus(
        directory,
        texts,
        lambda sides, chunk: _append(sides, tokenizer, chunk, max_length, max_ratio),
        id_dtype(tokenizer.vocab_size),
        fingerprint,
        progress,
        max_length=max_length,
        max_ratio=max_ratio,
    )
    return EncodedCorpus.open(directory)


def write_corpus(
    directory: Path,
    texts: Sequence[Iterable[tuple[str, str]]],
    append: Callable[[list[SideWriter], list[tuple[str, str]]], dict[str, int]],
    dtype: str,
    fingerprint: str,
    progress: Callable[[int], None] | None,
    *,
    max_length: int,
    max_ratio: float,
) -> None:
    """Writes a corpus chunk by chunk; it appears whole or not at all.

    `append` writes the sides of a chunk and returns its counts for the `FilterReport`, which
    also records the limits.
    """
    if directory.exists() and not (directory / INFO_FILE).is_file():
        raise UserError(
            f"{directory} must be new or an encoded corpus. Received: no {INFO_FILE} in it."
        )
    with replacing_folder(directory) as temporary:
        sides = [SideWriter(temporary, name, dtype) for name in SIDES]
        counts: Counter[str] = Counter()
        sizes = []
        for pairs in map(iter, texts):
            before = counts["kept"]
            while chunk := list(itertools.islice(pairs, CHUNK_PAIRS)):
                counts.update(append(sides, chunk))
                if progress is not None:
                    progress(counts["read"])
            sizes.append(counts["kept"] - before)
        report = FilterReport(
            **{name: counts[name] for name in COUNTS},
            max_length=max_length,
            max_ratio=max_ratio,
        )
        if not report.kept:
            raise UserError(f"The corpus has no usable pair: {report.summary()}.")
        for side in sides:
            side.finish()
        info = {"dtype": dtype, "fingerprint": fingerprint, "sizes": sizes}
        write_info(temporary, info | {"report": dataclasses.asdict(report)})


def _append(
    sides: list[SideWriter],
    tokenizer: "Tokenizer",
    pairs: list[tuple[str, str]],
    max_length: int,
    max_ratio: float,
) -> dict[str, int]:
    """Writes the usable pairs; returns the counts of a `FilterReport`."""
    encoded = []
    for side, texts in zip(SIDES, zip(*pairs, strict=True), strict=True):
        ids, _ = tokenizer.encode(texts, side)
        encoded.append((ids.values.numpy(), ids.row_lengths().numpy().astype(np.int32)))
    (_, source_lengths), (_, target_lengths) = encoded
    chosen = _drop(source_lengths, target_lengths, max_length, max_ratio)
    chosen["kept"] = ~np.any(list(chosen.values()), axis=0)
    for writer, (flat, lengths) in zip(sides, encoded, strict=True):
        writer.append(flat, lengths, chosen["kept"])
    return {"read": len(pairs)} | {name: int(rows.sum()) for name, rows in chosen.items()}


def _drop(
    source: np.ndarray, target: np.ndarray, max_length: int, max_ratio: float
) -> dict[str, np.ndarray]:
    """Marks the pairs dropped for each reason (one per pair): lengths [B] -> boolean [B]."""
    shorter, longer = np.minimum(source, target), np.maximum(source, target)
    empty = shorter == 1  # EOS alone
    too_long = ~empty & (longer > max_length)
    ratio = ~empty & ~too_long & (longer > max_ratio * shorter)
    return {"empty": empty, "too_long": too_long, "ratio": ratio}
