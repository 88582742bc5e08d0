"""The pairs of a text that pass the checks of `doctor`, each once, with dev and test set apart.

The first pass over the text judges each pair and keeps two hashes and a number of it, the
second one writes. No text stays in memory, which grows by some 120 bytes for each pair.
"""

import itertools
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TextIO

import numpy as np

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import new_folder
from tf_transformer.base.output import NamedProgress
from tf_transformer.base.parallel import MOST_PROCESSES, Processes, at_once, usable_cores
from tf_transformer.config import DataConfig
from tf_transformer.data.text import ParallelText, corpora, in_chunks, text_key
from tf_transformer.quality.defects import DUPLICATE, OVERLAP, Judge
from tf_transformer.quality.doctor import PROGRESS_EVERY, Count, Survey

HELD_OUT = 2_000  # pairs of dev, and of test
HELD_OUT_SHARE = 0.05  # of a small text
SPLITS = ("train", "dev", "test")
_MANY = 50_000  # pairs from which it is worth starting other processes
_CHUNK_PAIRS = 1_000  # judged by one process
_LATER = (*SPLITS, DUPLICATE, OVERLAP)  # what may become of a pair without a defect


def clean(
    data: DataConfig,
    test: Sequence[str],
    folder: Path,
    seed: int,
    progress: NamedProgress = lambda step, done: None,
    numbers: bool = False,
) -> list[str]:
    """Writes the pairs of `data.train` that pass into a new folder, the others with reasons.

    Unless `data.valid` and `test` name them, dev and test are drawn from the pairs whose source
    and target are in no other pair. A pair that shares a side with a given set does not pass,
    and with `numbers` none whose sides have other numbers.
    Returns lines that say how many pairs are where. Raises UserError if the corpora have
    several pairs of languages, a file cannot be read or written, or too few pairs are left.
    """
    texts = corpora(data.train, data)
    if len(languages := {"-".join(text.languages) for text in texts}) > 1:
        raise UserError(
            "Cleaning is for one pair of languages at a time. Received: "
            f"{', '.join(sorted(languages))}."
        )
    survey = Survey("train", texts)
    survey.read(progress, hashed=False)
    judge = Judge(survey.sample, data, numbers)
    fates, places, keys = [*_LATER], array("B"), array("Q")
    number = min(usable_cores(), MOST_PROCESSES) if survey.pairs > _MANY else 1
    with Processes(judge.judged, number) as judged:
        chunks = in_chunks(_read(texts, "checking", progress), _CHUNK_PAIRS)
        for _, (defects, some) in at_once(chunks, judged, number):
            fates.extend(each for each in dict.fromkeys(defects) if each not in ("", *fates))
            places.extend(fates.index(each or "train") for each in defects)
            keys.extend(some)
    fate = np.array(places)
    given = {"dev": corpora(data.valid, data), "test": corpora(test, data)}
    drawn = [name for name, its in given.items() if not its]
    held = array("Q")
    for source, target in _read([*given["dev"], *given["test"]], "reading", progress):
        held.extend((text_key(source), text_key(target)))
    fate[fate == 0] = _settle(keys, held, drawn, seed)
    del keys, held
    with new_folder(folder) as made:
        pairs = _read(texts, "writing", progress)
        named = zip(map(fates.__getitem__, fate.tobytes()), pairs, strict=True)
        _write(named, made, ["train", *drawn], texts[0].languages, survey.location)
    counts = dict(zip(fates, np.bincount(fate, minlength=len(fates)).tolist(), strict=True))
    written = ", ".join(f"{counts[name]:,} of {name}" for name in ("train", *drawn))
    others = {name: n for name, n in counts.items() if name not in SPLITS and n}
    count = Count(sum(others.values()), len(fate), "pairs")
    reasons = ", ".join(f"{name} {n:,}" for name, n in others.items()) or "none"
    return [f"{folder}: {written}", f"rejected {count}: {reasons}"]


def _settle(keys: array, given: array, drawn: Sequence[str], seed: int) -> np.ndarray:
    """Returns what becomes of each pair, as an index of `_LATER`.

    `keys` are hashes of sources and targets, in turn, and `given` those of given sets.
    """
    pairs, held = (np.asarray(each, np.uint64).reshape(-1, 2) for each in (keys, given))
    both = pairs[:, 0] * np.uint64(0x9E3779B97F4A7C15) + pairs[:, 1]
    fate = np.full(len(pairs), _LATER.index(DUPLICATE), np.uint8)
    fate[np.unique(both, return_index=True)[1]] = 0
    for side in (0, 1):
        known = (fate == 0) & np.isin(pairs[:, side], held[:, side])
        fate[known] = _LATER.index(OVERLAP)
    left = np.flatnonzero(fate == 0)
    alone = np.ones(len(left), bool)
    for side in (0, 1):
        _, where, counts = np.unique(pairs[left, side], return_inverse=True, return_counts=True)
        alone &= counts[where] == 1
    candidates = left[alone]
    most = len(candidates) // max(1, len(drawn))
    size = min(HELD_OUT, int(HELD_OUT_SHARE * len(left)), most)
    if not (size if drawn else len(left)):
        raise UserError(
            f"Cleaning needs more pairs that pass. Received: {len(left):,}, of which "
            f"{len(candidates):,} share no side with another and may be dev or test."
        )
    chosen = np.random.default_rng(seed).permutation(candidates)
    for number, name in enumerate(drawn):
        fate[chosen[number * size : (number + 1) * size]] = SPLITS.index(name)
    return fate


def _read(
    texts: Sequence[ParallelText], step: str, progress: NamedProgress
) -> Iterator[tuple[str, str]]:
    pairs = itertools.chain.from_iterable(text.plain_pairs() for text in texts)
    for done, pair in enumerate(pairs, start=1):
        if done % PROGRESS_EVERY == 0:
            progress(step, done)
        yield pair


def _write(
    named: Iterable[tuple[str, tuple[str, str]]],
    folder: Path,
    splits: Sequence[str],
    languages: tuple[str, str],
    location: Callable[[int], str],
) -> None:
    """Writes each pair to the split of its name; others with their names and locations."""
    with ExitStack() as stack:

        def new(name: str) -> TextIO:
            return stack.enter_context((folder / name).open("w", encoding="utf-8", newline=""))

        files = {name: [new(f"{name}.{end}") for end in languages] for name in splits}
        rejected = new("rejected.tsv")
        for number, (name, sides) in enumerate(named):
            if name in files:
                for file, side in zip(files[name], sides, strict=True):
                    file.write(f"{side}\n")
            else:
                cells = (name, location(number), *sides)
                rejected.write("\t".join(cell.replace("\t", " ") for cell in cells) + "\n")
