"""A tokenised parallel corpus on disk, memory-mapped so that it may exceed the memory.

Its metadata hold checksums of its files, and a fingerprint of what it was made from.
"""

import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import new_folder, parse_json, sha256
from tf_transformer.base.parallel import MOST_PROCESSES, Processes, at_once, usable_cores
from tf_transformer.config import EOS_ID, PAD_ID
from tf_transformer.data.text import SIDES, SideName, identity, in_chunks

if TYPE_CHECKING:  # corpora are read without TensorFlow
    from tf_transformer.data.tokenizer import Tokenizer

INFO_FILE = "corpus.json"
CHUNK_PAIRS = 2048  # tokenised by one core
MANY_CHUNKS = 24  # from which it is worth starting other processes

# Of source and target, the ids of all pairs in a row, and their lengths [pairs].
Sides = Sequence[tuple[np.ndarray, np.ndarray]]
Dropped = Mapping[str, np.ndarray]  # bool [pairs] for each reason to drop pairs


@dataclass(frozen=True)
class FilterReport:
    """Numbers of pairs read, kept, and dropped by reason (the first that applies)."""

    read: int
    kept: int
    empty: int
    too_long: int
    ratio: int
    max_length: int
    max_ratio: float

    def summary(self) -> str:
        """Formats a line such as "9 pairs read, 8 kept; dropped: 1 empty"."""
        reasons = {
            f"{self.empty:,} empty": self.empty,
            f"{self.too_long:,} longer than {self.max_length} tokens": self.too_long,
            f"{self.ratio:,} with a length ratio above {self.max_ratio:g}": self.ratio,
        }
        dropped = ", ".join(reason for reason, count in reasons.items() if count)
        kept = f"{self.read:,} pairs read, {self.kept:,} kept"
        return f"{kept}; dropped: {dropped}" if dropped else kept


class EncodedSide:
    """Sentences of one side, as slices of a flat array of ids."""

    def __init__(self, directory: Path, name: str, dtype: str):
        self.lengths = np.load(directory / f"{name}_lengths.npy")
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths, dtype=np.int64)])
        # A plain view: indexing the np.memmap class itself is slower.
        self.ids = np.asarray(np.memmap(directory / f"{name}_ids.bin", dtype, mode="r"))

    def sentence(self, index: int) -> np.ndarray:
        """Returns the int32 ids of a sentence."""
        start = self.offsets[index]
        return self.ids[start : start + self.lengths[index]].astype(np.int32)

    def flat(self, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of sentences in a row, and their lengths."""
        lengths = self.lengths[indices].astype(np.int64)
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        return self.ids[np.repeat(self.offsets[indices], lengths) + within], lengths

    def padded(self, indices: np.ndarray, length: int, tags: np.ndarray | int) -> np.ndarray:
        """Returns sentences as int32 [len(indices), length]; see `EncodedCorpus.padded`."""
        if indices.ndim == 2:
            return self._joined(indices, length, tags)
        columns = np.arange(length)
        real = columns < self.lengths[indices, np.newaxis]  # [B, length]
        positions = self.offsets[indices, np.newaxis] + columns
        result = np.full(real.shape, PAD_ID, np.int32)
        result[real] = self.ids[positions[real]]
        return result

    def _joined(self, indices: np.ndarray, length: int, tags: np.ndarray | int) -> np.ndarray:
        left_out = np.zeros_like(indices)  # [B, N], like counts, ends and starts
        left_out[:, 1:] = np.reshape(tags, [-1, 1])
        counts = np.where(indices < 0, 0, self.lengths[indices] - 1 - left_out)  # without EOS
        ends = np.cumsum(counts)  # of all sentences in a row
        starts = self.offsets[indices] + left_out
        positions = np.repeat(starts.ravel() - ends + counts.ravel(), counts.ravel())
        totals = counts.sum(axis=1)
        result = np.full([len(indices), length], PAD_ID, np.int32)
        positions += np.arange(len(positions))
        result[np.arange(length) < totals[:, np.newaxis]] = self.ids[positions]
        result[np.arange(len(indices)), totals] = EOS_ID
        return result


class EncodedCorpus:
    """Sentence pairs as ids, each side ending in EOS; made by `encode_corpus`.

    Attributes:
        source_lengths, target_lengths: int32 [pairs], in tokens with EOS.
        report: numbers of pairs that the filters kept and dropped.
        fingerprint: hash of what the corpus was made from.
        sizes: number of pairs from each text, in the order of the texts.
    """

    def __init__(self, directory: Path, info: dict[str, Any]) -> None:
        self._sides = {name: EncodedSide(directory, name, info["dtype"]) for name in SIDES}
        self.source_lengths, self.target_lengths = map(self.lengths, SIDES)
        info["report"].pop("cut", 0)  # of 1.1.0
        self.report = FilterReport(**info["report"])
        self.fingerprint, self.sizes = info["fingerprint"], info["sizes"]

    @classmethod
    def open(cls, directory: Path) -> Self:
        """Maps the corpus in `directory`; UserError if it is missing or a checksum is wrong."""
        try:
            return cls(directory, _read_info(directory))
        except (OSError, ValueError, KeyError, TypeError) as error:
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

    def flat(self, side: SideName, indices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Returns the ids of sentences of a side in a row, and their lengths."""
        return self._sides[side].flat(indices)

    def padded(
        self, side: SideName, indices: np.ndarray, length: int, tags: np.ndarray | int = 0
    ) -> np.ndarray:
        """Returns sentences of a side as int32 [len(indices), length], padded with PAD.

        Args:
            side: "source" or "target".
            indices: those of sentences [B], or of sentences to join [B, N]; -1 for none.
            length: at least that of the longest result.
            tags: number of ids left out at the start of all joined sentences but the first,
                one for all or [B].
        """
        return self._sides[side].padded(indices, length, tags)


def fingerprint(texts: Sequence[Path], models: Iterable[bytes], settings: str) -> str:
    """Returns a hash of the text, the tokenizer's models and the filters."""
    digest = hashlib.sha256(b"".join(models))
    digest.update(f"{identity(texts)} {settings}".encode())
    return digest.hexdigest()


def id_dtype(size: int) -> str:
    """Returns the dtype on disk of ids below `size`."""
    return "<u2" if size <= 2**16 else "<i4"


def encode_corpus(
    texts: Sequence[Iterable[tuple[str, ...]]],
    tokenizer: "Tokenizer",
    directory: Path,
    *,
    max_length: int,
    max_ratio: float,
    fingerprint: str = "",
    progress: Callable[[int], None] | None = None,
) -> EncodedCorpus:
    """Tokenises and filters texts into `directory`, which appears whole or not at all.

    Texts are (source, target) sentences; those behind them, if any, take their place, except in
    pairs that the filters would drop for it. The limits count EOS; the ratio is that of the
    longer to the shorter side. The fingerprint is stored for the caller to compare.

    Raises UserError if no pair is left, the disk is full, or `directory` holds something else
    than an older corpus, which is replaced.
    """
    encode = _Encoder(tokenizer, max_length, max_ratio)
    if directory.exists() and not (directory / INFO_FILE).is_file():
        raise UserError(
            f"{directory} must be new or an encoded corpus. Received: no {INFO_FILE} in it."
        )
    dtype = id_dtype(tokenizer.vocab_size)
    with new_folder(directory, replaces=True) as temporary:
        lengths: dict[str, list[np.ndarray]] = {side: [] for side in SIDES}
        counts = dict.fromkeys(("read", "kept", "empty", "too_long", "ratio"), 0)
        sizes = []
        for pairs in texts:
            before = counts["kept"]
            for batch, (sides, dropped) in _encoded(pairs, encode):
                keep = ~np.any(list(dropped.values()), axis=0)
                counts["read"] += len(batch)
                counts["kept"] += int(keep.sum())
                for reason, rows in dropped.items():
                    counts[reason] += int(rows.sum())
                for side, (ids, of_all) in zip(SIDES, sides, strict=True):
                    kept = ids[np.repeat(keep, of_all)].astype(dtype)
                    with (temporary / f"{side}_ids.bin").open("ab") as file:
                        file.write(kept.tobytes())
                    lengths[side].append(of_all[keep])
                if progress is not None:
                    progress(counts["read"])
            sizes.append(counts["kept"] - before)
        report = FilterReport(**counts, max_length=max_length, max_ratio=max_ratio)
        if not report.kept:
            raise UserError(f"The corpus has no usable pair: {report.summary()}.")
        for side in SIDES:
            np.save(temporary / f"{side}_lengths.npy", np.concatenate(lengths[side]))
        info = {"dtype": dtype, "fingerprint": fingerprint, "sizes": sizes}
        _write_info(temporary, info | {"report": dataclasses.asdict(report)})
    return EncodedCorpus.open(directory)


@dataclass(frozen=True)
class _Encoder:
    """Tokenises pairs, and tells which are dropped; those behind them take their place."""

    tokenizer: Any
    max_length: int
    max_ratio: float

    def __call__(self, pairs: Sequence[tuple[str, ...]]) -> tuple[Sides, Dropped]:
        sides, dropped = self._encoded([pair[:2] for pair in pairs])
        if any(len(pair) > 2 for pair in pairs):
            _, of_others = self._encoded([pair[2:] for pair in pairs])
            unfit = np.any(list(of_others.values()), axis=0)
            both = zip(pairs, unfit, strict=True)
            sides, _ = self._encoded([pair[:2] if bad else pair[2:] for pair, bad in both])
        return sides, dropped

    def _encoded(self, pairs: Sequence[tuple[str, ...]]) -> tuple[Sides, Dropped]:
        sides = []
        for side, sentences in zip(SIDES, zip(*pairs, strict=True), strict=True):
            rows = self.tokenizer.ids(sentences, side)
            lengths = np.array([len(row) + 1 for row in rows], np.int32)
            ids = (number for row in rows for number in (*row, EOS_ID))
            sides.append((np.fromiter(ids, np.int32, lengths.sum()), lengths))
        (_, source_lengths), (_, target_lengths) = sides
        limits = self.max_length, self.max_ratio
        return sides, _dropped(source_lengths, target_lengths, *limits)


def _encoded(
    pairs: Iterable[tuple[str, ...]], encode: _Encoder
) -> Iterator[tuple[Sequence[tuple[str, ...]], tuple[Sides, Dropped]]]:
    """Yields chunks of pairs, encoded; by other processes if there are many.

    Threads pass Python's lock to and fro at every sentence: two gain a tenth.
    """
    chunks = iter(in_chunks(pairs, CHUNK_PAIRS))
    first = [*islice(chunks, MANY_CHUNKS)]
    number = min(usable_cores(), MOST_PROCESSES) if len(first) == MANY_CHUNKS else 1
    if number > 1:
        encode = replace(encode, tokenizer=encode.tokenizer.in_python())
    with Processes(encode, number) as encoded:
        yield from at_once(chain(first, chunks), encoded, number)


def _dropped(
    source: np.ndarray, target: np.ndarray, max_length: int, max_ratio: float
) -> Dropped:
    """Marks the pairs dropped for each reason (one per pair): lengths [B] -> boolean [B]."""
    shorter, longer = np.minimum(source, target), np.maximum(source, target)
    empty = shorter == 1  # EOS alone
    too_long = ~empty & (longer > max_length)
    ratio = ~empty & ~too_long & (longer > max_ratio * shorter)
    return {"empty": empty, "too_long": too_long, "ratio": ratio}


# --- Metadata ------------------------------------------------------------------------------


def _write_info(directory: Path, info: dict[str, Any]) -> None:
    """Writes INFO_FILE, the last file: its presence marks a complete corpus."""
    files = sorted(directory.iterdir())
    info = info | {"checksums": {file.name: sha256(file) for file in files}}
    info["checksum"] = _checksum(info)
    (directory / INFO_FILE).write_text(json.dumps(info, indent=2), encoding="utf-8")


def _read_info(directory: Path) -> dict[str, Any]:
    """Reads INFO_FILE and verifies the checksums of all files of the corpus."""
    info = parse_json((directory / INFO_FILE).read_text("utf-8"))
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
