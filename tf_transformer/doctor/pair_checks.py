"""Checks for common defects of sentence pairs: copies, shifts, swapped sides, repetitions."""

import math
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from tf_transformer.data.corpus import SIDES
from tf_transformer.doctor.findings import Count, Finding, judge
from tf_transformer.doctor.survey import Hashes, Pair, Survey

ORDER = 4  # bytes: two to four letters
BUCKETS = 2**16
PROFILE_PAIRS = 50_000
CHUNK_PAIRS = 10_000
MAX_WEIGHT = 4.0  # nats, so that no single n-gram decides
EVIDENCE = 10.0  # nats by which each side of a swapped pair must look like the other side

# Largest shares without a warning.
COPIES = 0.01
SKEWED = 0.02
SWAPPED = 0.001
REPEATED = 0.05
OVERLAP = 0.01
SOURCE_OVERLAP = 0.05

MAX_SKEW = 3.0  # factor by which a pair's length ratio may differ from the median
SKEW_FROM = 20  # characters; in shorter pairs a single word changes the ratio too much


def learn_direction(sources: Sequence[str], targets: Sequence[str]) -> np.ndarray:
    """Learns the weight of each n-gram, log p(n-gram | source side) / p(n-gram | target side).

    Returns:
        float64 [BUCKETS]; an n-gram's bucket is its hash.
    """
    every = max(1, len(sources) // PROFILE_PAIRS)
    counts = [_count(lines[::every]) for lines in (sources, targets)]
    # Add-one smoothing, so that no n-gram is impossible.
    source, target = ((count + 1) / (count.sum() + BUCKETS) for count in counts)
    return np.clip(np.log(source / target), -MAX_WEIGHT, MAX_WEIGHT)


def swapped_pairs(
    weights: np.ndarray, sources: Sequence[str], targets: Sequence[str]
) -> np.ndarray:
    """Finds pairs whose source looks like a target and whose target looks like a source.

    Both must exceed `EVIDENCE`: a foreign name or quotation on one side is no swap.

    Returns:
        bool [pairs].
    """
    chunks = [
        (_evidence(weights, sources[start:end]) < -EVIDENCE)
        & (_evidence(weights, targets[start:end]) > EVIDENCE)
        for start in range(0, len(sources), CHUNK_PAIRS)
        for end in [start + CHUNK_PAIRS]
    ]
    return np.concatenate(chunks) if chunks else np.zeros(0, bool)


def _count(lines: Sequence[str]) -> np.ndarray:
    counts = np.zeros(BUCKETS)
    for start in range(0, len(lines), CHUNK_PAIRS):
        buckets, _ = _ngrams(lines[start : start + CHUNK_PAIRS])
        counts += np.bincount(buckets, minlength=BUCKETS)
    return counts


def _evidence(weights: np.ndarray, lines: Sequence[str]) -> np.ndarray:
    """Returns the summed n-gram weights of each line, [lines]; positive means source-like."""
    buckets, starts = _ngrams(lines)
    return np.add.reduceat(weights[buckets], starts)


def _ngrams(lines: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """Returns the buckets of the lines' n-grams, concatenated, and the start of each line."""
    # Spaces between lines keep n-grams from containing text of two of them.
    padding = " " * (ORDER - 1)
    encoded = [f"{padding}{line} ".encode() for line in lines]
    lengths = np.array([len(line) for line in encoded])
    joined = b"".join([*encoded, padding.encode()])
    text = np.frombuffer(joined, np.uint8).astype(np.uint32)
    code = np.zeros(len(text) - ORDER + 1, np.uint32)
    for offset in range(ORDER):
        code = (code << np.uint32(8)) | text[offset : offset + len(code)]
    # The bucket is the upper 16 bits of Knuth's multiplicative hash.
    buckets = (code * np.uint32(2654435761)) >> np.uint32(16)
    return buckets, np.cumsum(lengths) - lengths


def check_copies(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for untranslated targets, equal to their source."""
    message = (
        "have the same text on both sides. A few of them teach a model to copy (Khayrallah and "
        "Koehn 2018): remove them, and check that no file was given twice."
    )
    return judge("copies", [_pairs_with(s, _is_copy) for s in surveys], COPIES, message)


def _is_copy(pair: Pair) -> bool:
    source = pair.source.strip()
    return source == pair.target.strip() and any(map(str.isalpha, source))


def check_ratio(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for pairs with an unusual length ratio, such as after a shift of lines."""
    ratios = [_log_ratio(pair) for pair in surveys[0].sample]
    usual = median([ratio for ratio in ratios if ratio is not None] or [0.0])

    def skewed(pair: Pair) -> bool:
        ratio = _log_ratio(pair)
        return ratio is not None and abs(ratio - usual) > math.log(MAX_SKEW)

    message = (
        f"have a length ratio that is off the median by a factor of {MAX_SKEW:g} or more. They "
        "are unlikely to be translations: check whether lines have shifted, or filter them."
    )
    return judge("length ratio", [_pairs_with(s, skewed) for s in surveys], SKEWED, message)


def _log_ratio(pair: Pair) -> float | None:
    """Returns log(source characters / target characters); None for short or empty text."""
    source, target = len(pair.source), len(pair.target)
    if max(source, target) < SKEW_FROM or not min(source, target):
        return None
    return math.log(source / target)


def _pairs_with(survey: Survey, defective: Callable[[Pair], bool]) -> Count:
    bad = [pair.number for pair in survey.sample if defective(pair)]
    return survey.count(bad, len(survey.sample), "pairs")


# --- Direction ---------------------------------------------------------------------------


def check_direction(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for pairs or files with swapped languages; skipped for several language pairs."""
    if len({text.languages for survey in surveys for text in survey.corpora}) > 1:
        return []
    weights = learn_direction(*map(surveys[0].texts, SIDES))
    findings: list[Finding] = []
    counts: list[Count] = []
    for survey in surveys:
        swapped = swapped_pairs(weights, *map(survey.texts, SIDES))
        files = _swapped_files(survey, swapped)
        findings += files
        if not files:
            bad = [survey.sample[row].number for row in swapped.nonzero()[0]]
            counts.append(survey.count(bad, len(survey.sample), "pairs"))
    message = (
        "seem to have their languages swapped, judging by their letters. The model would learn "
        "to write both languages: swap these lines back, or remove them."
    )
    lines = judge("swapped languages", counts, SWAPPED, message) if counts else []
    return findings + [line for line in lines if line.warning or not findings]


def _swapped_files(survey: Survey, swapped: np.ndarray) -> list[Finding]:
    """Returns a warning for each corpus in which most pairs are swapped."""
    numbers = np.array([survey.corpus_of(pair.number) for pair in survey.sample], int)
    findings = []
    for index in np.unique(numbers):
        number, total = int(swapped[numbers == index].sum()), int((numbers == index).sum())
        if 2 * number > total:
            corpus = survey.corpora[index]
            count = Count(number, total, f"pairs of {survey.name}")
            named = f"{count} in {corpus.source} and {corpus.target}"
            text = (
                f"{named} have their languages swapped, judging by their letters. The files "
                "seem to be named the wrong way round: rename them."
                if survey.name == "train"
                else f"train and {survey.name} disagree about which language is which, judging "
                f"by their letters: {named}. Look at both: one of them is named the wrong way "
                "round."
            )
            findings.append(Finding("swapped languages", text, warning=True))
    return findings


# --- Repetitions -------------------------------------------------------------------------


def check_repetitions(train: Survey) -> list[Finding]:
    """Checks for repeated pairs in the training text."""
    hashes, numbers = train.both.kept(train.both.every)
    _, firsts = np.unique(hashes, return_index=True)
    repeated = np.delete(numbers, firsts)
    count = train.count(repeated, len(hashes), f"{_sampled(train.both.every)}pairs")
    message = (
        "repeat an earlier pair. Often repeated pairs are memorised, and each copy costs "
        "training time: remove them, unless they weight the data on purpose."
    )
    return judge("repetitions", [count], REPEATED, message)


def check_overlap(train: Survey, others: Sequence[Survey]) -> list[Finding]:
    """Checks for pairs and source sentences of dev and test in the training text."""
    where = "train" if train.every == 1 else f"a sample of train (1 pair in {train.every})"
    message = (
        f"are also in {where}. The score would count memorised sentences: remove them from "
        "train."
    )
    pairs = [_overlap(train, other, "both", "pairs") for other in others]
    sources = [_overlap(train, other, "sources", "source sentences") for other in others]
    findings = judge("overlap", pairs, OVERLAP, message)
    if findings[0].warning:
        return findings
    return judge("overlap", sources, SOURCE_OVERLAP, message)


def _overlap(train: Survey, other: Survey, kind: str, unit: str) -> Count:
    in_train: Hashes = getattr(train, kind)
    in_other: Hashes = getattr(other, kind)
    every = max(in_train.every, in_other.every)
    hashes, numbers = in_other.kept(every)
    shared = numbers[np.isin(hashes, in_train.kept(every)[0])]
    return other.count(shared, len(hashes), f"{_sampled(every)}{unit}")


def _sampled(every: int) -> str:
    return "sampled " if every > 1 else ""
