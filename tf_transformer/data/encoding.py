"""Tokenises and filters text into the corpus on disk that `encoded` reads."""

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import numpy as np
import tensorflow as tf

from tf_transformer.config import EOS_ID
from tf_transformer.data.corpus import SIDES
from tf_transformer.data.encoded import INFO_FILE, EncodedCorpus, FilterReport, write_info
from tf_transformer.data.tokenizer import Tokenizer
from tf_transformer.errors import UserError
from tf_transformer.files import replacing_folder

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
    tokenizer: Tokenizer,
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
    tokenizer: Tokenizer,
    pairs: list[tuple[str, str]],
    max_length: int,
    max_ratio: float,
) -> dict[str, int]:
    """Writes the usable pairs; returns the counts of a `FilterReport`."""
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


def token_ids(
    tokenize: Callable[[tf.Tensor], tf.RaggedTensor], texts: tuple[str, ...]
) -> tuple[np.ndarray, np.ndarray]:
    """Returns the concatenated ids of `texts`, each with EOS, and their lengths [B]."""
    ends = tf.fill([len(texts), 1], EOS_ID)
    ids = tf.concat([tokenize(tf.constant(texts)), ends], axis=1)
    return ids.values.numpy(), ids.row_lengths().numpy().astype(np.int32)


def _drop(
    source: np.ndarray, target: np.ndarray, max_length: int, max_ratio: float
) -> dict[str, np.ndarray]:
    """Marks the pairs dropped for each reason (one per pair): lengths [B] -> boolean [B]."""
    shorter, longer = np.minimum(source, target), np.maximum(source, target)
    empty = shorter == 1  # EOS alone
    too_long = ~empty & (longer > max_length)
    ratio = ~empty & ~too_long & (longer > max_ratio * shorter)
    return {"empty": empty, "too_long": too_long, "ratio": ratio}
