"""Common defects of sentence pairs: copies, shifted lines, swapped sides, repetitions.

Checks take and return what those of `doctor.line_checks` do.
"""

import math
from collections.abc import Callable, Sequence
from statistics import median

import numpy as np

from tf_transformer.doctor.direction import learn_direction, swapped_pairs
from tf_transformer.doctor.findings import Count, Finding, judge
from tf_transformer.doctor.survey import Hashes, Pair, Survey

COPIES = 0.01
SKEWED = 0.02
SWAPPED = 0.001
REPEATED = 0.05
OVERLAP = 0.01
SOURCE_OVERLAP = 0.05

MAX_SKEW = 3.0  # how far a pair's length ratio may be from the usual one, as a factor
SKEW_FROM = 20  # characters; in shorter pairs a word more makes a large ratio


def check_copies(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for untranslated targets, equal to their source."""
    what = (
        "have the same text on both sides. A model learns from few of them to copy (Khayrallah "
        "and Koehn 2018): remove them, and see that no file was given twice."
    )
    return judge("copies", [_pairs_with(s, _is_copy) for s in surveys], COPIES, what)


def _is_copy(pair: Pair) -> bool:
    source = pair.source.strip()
    return source == pair.target.strip() and any(map(str.isalpha, source))


def check_ratio(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for pairs with an unusual length ratio, as after lines have shifted."""
    ratios = [_log_ratio(pair) for pair in surveys[0].sample]
    usual = median([ratio for ratio in ratios if ratio is not None] or [0.0])

    def skewed(pair: Pair) -> bool:
        ratio = _log_ratio(pair)
        return ratio is not None and abs(ratio - usual) > math.log(MAX_SKEW)

    what = (
        f"have a length ratio {MAX_SKEW:g} times off the usual one or more. They can hardly "
        "be translations: see whether lines have shifted, or filter them."
    )
    return judge("length ratio", [_pairs_with(s, skewed) for s in surveys], SKEWED, what)


def _log_ratio(pair: Pair) -> float | None:
    """log(source characters / target characters); None of short or empty text."""
    source, target = len(pair.source), len(pair.target)
    if max(source, target) < SKEW_FROM or not min(source, target):
        return None
    return math.log(source / target)


def _pairs_with(survey: Survey, defective: Callable[[Pair], bool]) -> Count:
    return _count(survey, [pair.number for pair in survey.sample if defective(pair)])


def _count(survey: Survey, bad: Sequence[int]) -> Count:
    first = survey.place(bad[0]) if len(bad) else ""
    return Count(len(bad), len(survey.sample), f"pairs of {survey.name}", first)


# --- Direction ---------------------------------------------------------------------------


def check_direction(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for pairs, or whole files, with swapped languages; not where there are several."""
    if len({text.languages for survey in surveys for text in survey.corpora}) > 1:
        return []
    train = surveys[0].sample
    weights = learn_direction([pair.source for pair in train], [pair.target for pair in train])
    findings: list[Finding] = []
    counts: list[Count] = []
    for survey in surveys:
        sources = [pair.source for pair in survey.sample]
        targets = [pair.target for pair in survey.sample]
        swapped = swapped_pairs(weights, sources, targets)
        files = _swapped_files(survey, swapped)
        findings += files
        if not files:
            counts.append(
                _count(survey, [survey.sample[i].number for i in swapped.nonzero()[0]])
            )
    what = (
        "seem to have their languages swapped, by their letters. The model would learn to "
        "write both languages: swap these lines back, or remove them."
    )
    lines = judge("swapped languages", counts, SWAPPED, what) if counts else []
    return findings + [line for line in lines if line.warning or not findings]


def _swapped_files(survey: Survey, swapped: np.ndarray) -> list[Finding]:
    """A warning for each corpus most of whose pairs are swapped."""
    numbers = np.array([survey.corpus_of(pair.number) for pair in survey.sample], int)
    findings = []
    for index in np.unique(numbers):
        number, total = int(swapped[numbers == index].sum()), int((numbers == index).sum())
        if 2 * number > total:
            corpus = survey.corpora[index]
            count = Count(number, total, f"pairs of {survey.name}")
            named = f"{count} in {corpus.source} and {corpus.target}"
            text = (
                f"{named} have the languages swapped, by their letters. The files seem to be "
                "named the wrong way round: rename them."
                if survey.name == "train"
                else f"train and {survey.name} disagree about which language is which, by "
                f"their letters: {named}. Look at both: one of the two is named the wrong way "
                "round."
            )
            findings.append(Finding("swapped languages", text, warning=True))
    return findings


# --- Repetitions -------------------------------------------------------------------------


def check_repetitions(train: Survey) -> list[Finding]:
    """Checks for repeated pairs in the training text."""
    hashes, numbers = train.both.kept(train.both.every)
    _, firsts = np.unique(hashes, return_index=True)
    again = np.delete(numbers, firsts)
    first = train.place(int(again[0])) if len(again) else ""
    count = Count(len(again), len(hashes), f"{_sampled(train.both)}pairs of train", first)
    what = (
        "repeat an earlier pair. What is often repeated is learned by heart, and each copy "
        "costs a step's share: remove them, unless you weight the data so."
    )
    return judge("repetitions", [count], REPEATED, what)


def check_overlap(train: Survey, others: Sequence[Survey]) -> list[Finding]:
    """Checks for pairs and source sentences of dev and test in the training text."""
    where = "train" if train.every == 1 else f"each {train.every}th pair of train"
    what = (
        f"are in {where} as well. The score would be of sentences learned by heart: remove "
        "them from train."
    )
    pairs = [_overlap(train, other, "both", "pairs") for other in others]
    sources = [_overlap(train, other, "sources", "source sentences") for other in others]
    findings = judge("overlap", pairs, OVERLAP, what)
    return findings if findings[0].warning else judge("overlap", sources, SOURCE_OVERLAP, what)


def _overlap(train: Survey, other: Survey, kind: str, unit: str) -> Count:
    seen: Hashes = getattr(train, kind)
    looked_at: Hashes = getattr(other, kind)
    every = max(seen.every, looked_at.every)
    hashes, numbers = looked_at.kept(every)
    known = numbers[np.isin(hashes, seen.kept(every)[0])]
    first = other.place(int(known[0])) if len(known) else ""
    sampled = "sampled " if every > 1 else ""
    return Count(len(known), len(hashes), f"{sampled}{unit} of {other.name}", first)


def _sampled(hashes: Hashes) -> str:
    return "sampled " if hashes.every > 1 else ""
