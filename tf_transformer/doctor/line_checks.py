"""Common defects of the lines of parallel text: characters, tokenisation, case.

Every check takes surveys, that of the training text first, and returns its warnings, or one
finding that says that all is well. The limits are shares from which a defect is worth a
warning; docs/guides/doctor.md says which clean corpora they let pass.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from tf_transformer.data.corpus import SIDES
from tf_transformer.doctor.findings import Count, Finding, judge, percent
from tf_transformer.doctor.survey import Survey

BROKEN = 0.001
EMPTY = 0.01
DROPPED = 0.05
TOKENISED = 0.1
MISMATCH = 0.5  # between the shares of two splits
MIN_EVIDENCE = 20  # lines; a share of fewer says nothing of a text

# U+FFFD stands where a decoder failed. The rest is UTF-8 read as Latin-1 or Windows-1252:
# the first byte of a Latin, Greek or Cyrillic letter and, as a character of either, a second.
_SECOND = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_BROKEN = re.compile(f"\ufffd|[ÂÃÄÅÎÏÐÑ][{_SECOND}]|â€[{_SECOND}]|ï»¿")
# All but the tab: those of ASCII and Latin-1, and Unicode's line separators.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{2,6}|#x[0-9a-fA-F]{2,5});")
# What Moses's tokenizer leaves. French has blanks before ;:!? in raw text as well.
_TOKENISED = re.compile(r" [.,](?: |$)| @-@ |&(?:apos|quot|#9[13]|#124);")
_RAW = re.compile(r"\w[.,](?: |$)")

Side = tuple[str, str]  # a survey's name, and "source" or "target"


def check_characters(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for broken encodings, control characters and HTML entities."""
    defects = {
        "encoding": (
            _BROKEN,
            'hold U+FFFD or text read in a wrong encoding, such as "Ã¤" for "ä". The model '
            "would learn it: convert the original again, to UTF-8.",
        ),
        "control characters": (
            _CONTROL,
            "hold control characters or line separators. They come from a wrong encoding or "
            "a broken extraction, and shift lines in other tools: remove them.",
        ),
        "HTML entities": (
            _ENTITY,
            'hold entities such as "&amp;". The model would write them: unescape the text.',
        ),
    }
    return [
        finding
        for check, (pattern, what) in defects.items()
        for finding in judge(check, _lines_with(surveys, pattern.search), BROKEN, what)
    ]


def check_empty(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for lines without text, and for splits that have none at all."""
    findings = [
        Finding(
            "empty lines",
            f"{survey.name} has no pair with text on both sides and cannot be used: see "
            "whether the files are the right ones.",
            warning=True,
        )
        for survey in surveys
        if not any(pair.source.strip() and pair.target.strip() for pair in survey.sample)
    ]
    what = (
        "are empty. Such pairs are dropped in training and cost BLEU in a dev set: see "
        "whether the files still belong together."
    )
    counts = _lines_with(surveys, lambda line: not line.strip())
    return findings or judge("empty lines", counts, EMPTY, what)


def check_length(surveys: Sequence[Survey], max_length: int) -> list[Finding]:
    """Checks for lines too long for any tokenizer: a word is at least a token.

    `max_length` is `data.max_length`, in tokens with EOS.
    """
    what = (
        f"have more words than data.max_length={max_length} allows tokens, and are dropped in "
        "training: split them into sentences, or raise it."
    )
    counts = _lines_with(surveys, lambda line: len(line.split()) >= max_length)
    return judge("length", counts, DROPPED, what)


def check_tokenised(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for text tokenised by Moses, everywhere or in only one split."""
    shares = {side: _tokenised_share(lines) for side, lines in _texts(surveys)}
    findings = [
        Finding(
            "tokenised text",
            f"{_of(tokenised)} is tokenised ({percent(high)} of the lines that "
            f"show it) and {_of(raw)} is not ({percent(low)}). The model would be "
            "measured on text unlike the one it learned: detokenise.",
            warning=True,
        )
        for (tokenised, high), (raw, low) in _mismatches(surveys, shares)
    ]
    what = (
        'have blanks before full stops, "@-@" or "&apos;", as after Moses\'s tokenizer. '
        "SentencePiece needs none, and sacreBLEU is of raw text: detokenise."
    )
    if findings:
        return findings
    return judge("tokenised text", _lines_with(surveys, _TOKENISED.search), TOKENISED, what)


def check_case(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for a lower-cased split where another is cased."""
    shares = {side: _capital_share(lines) for side, lines in _texts(surveys)}
    findings = [
        Finding(
            "case",
            f"{percent(high)} of the lines of {_of(cased)} have capital letters, but "
            f"{percent(low)} of {_of(lower)}. The model would not know the words of "
            "one of them: lower-case both or neither.",
            warning=True,
        )
        for (cased, high), (lower, low) in _mismatches(surveys, shares)
    ]
    known = [share for share in shares.values() if share is not None]
    if not known:
        return [Finding("case", "nothing to compare")]
    text = f"at least {percent(min(known))} of the lines have capitals, on each side"
    return findings or [Finding("case", text)]


def _lines_with(surveys: Sequence[Survey], defective: Callable[[str], object]) -> list[Count]:
    """The lines of each survey's sample that are defective, source and target apart."""
    counts = []
    for survey in surveys:
        for side in SIDES:
            bad = [pair.number for pair in survey.sample if defective(pair.text(side))]
            first = survey.place(bad[0], side) if bad else ""
            unit = f"{side} lines of {survey.name}"
            counts.append(Count(len(bad), len(survey.sample), unit, first))
    return counts


def _texts(surveys: Sequence[Survey]) -> Iterator[tuple[Side, list[str]]]:
    for survey in surveys:
        for side in SIDES:
            yield (survey.name, side), [pair.text(side) for pair in survey.sample]


def _of(side: Side) -> str:
    return f"{side[0]} {side[1]}"


def _tokenised_share(lines: Sequence[str]) -> float | None:
    """Share of tokenised lines among those that show it; None if these are too few."""
    tokenised = [line for line in lines if _TOKENISED.search(line)]
    raw = sum(1 for line in lines if _RAW.search(line) and not _TOKENISED.search(line))
    return _share(len(tokenised), len(tokenised) + raw)


def _capital_share(lines: Sequence[str]) -> float | None:
    """Share of lines with capitals among those of a cased script; None if too few."""
    cased = [line for line in lines if line.lower() != line.upper()]
    return _share(sum(1 for line in cased if line != line.lower()), len(cased))


def _share(number: int, total: int) -> float | None:
    return number / total if total >= MIN_EVIDENCE else None


def _mismatches(
    surveys: Sequence[Survey], shares: Mapping[Side, float | None]
) -> Iterator[tuple[tuple[Side, float], tuple[Side, float]]]:
    """Yields sides of train and another split whose shares differ much, the higher first."""
    for survey in surveys[1:]:
        for name in SIDES:
            first, other = (surveys[0].name, name), (survey.name, name)
            of_first, of_other = shares[first], shares[other]
            if of_first is None or of_other is None:
                continue
            if of_first - of_other > MISMATCH:
                yield (first, of_first), (other, of_other)
            elif of_other - of_first > MISMATCH:
                yield (other, of_other), (first, of_first)
