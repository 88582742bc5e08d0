"""Checks for common defects of lines in parallel text: characters, tokenisation, case.

Every check takes surveys, with the training text first, and returns its warnings, or a single
finding if there are none. A defect above its limit, a share of the lines, is a warning;
docs/guides/doctor.md lists the clean corpora that pass.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from tf_transformer.data.corpus import SIDES, SideName
from tf_transformer.doctor.findings import Count, Finding, judge, percent
from tf_transformer.doctor.survey import Survey

BROKEN = 0.001
EMPTY = 0.01
DROPPED = 0.05
TOKENISED = 0.1
MISMATCH = 0.5  # difference between the shares of two splits
MIN_EVIDENCE = 20  # lines; a share of fewer lines means nothing

# U+FFFD replaces bytes that could not be decoded. The rest is UTF-8 decoded as Latin-1 or
# Windows-1252: the lead byte of a Latin, Greek or Cyrillic letter, then a continuation byte.
_SECOND = "\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ"
_BROKEN = re.compile(f"\ufffd|[ÂÃÄÅÎÏÐÑ][{_SECOND}]|â€[{_SECOND}]|ï»¿")
# Control characters of ASCII and Latin-1 except the tab, and Unicode's line separators.
_CONTROL = re.compile("[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029]")
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{2,6}|#x[0-9a-fA-F]{2,5});")
_NOT_MOSES = re.compile(rf"(?!&(?:amp|apos|quot|lt|gt|#124|#91|#93);){_ENTITY.pattern}")
# Traces of Moses's tokenizer; not spaces before ;:!?, which raw French text has as well.
_TOKENISED = re.compile(r" [.,](?: |$)| @-@ |&(?:apos|quot|#9[13]|#124);")
_RAW = re.compile(r"\w[.,](?: |$)")
# Thai to Lao, Burmese, Khmer, kana and Han, written without blanks between words.
_NO_BLANKS = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff]{8}"
)

Side = tuple[str, str]  # a survey's name, and "source" or "target"


def check_characters(surveys: Sequence[Survey], bleu_tokenizer: str = "13a") -> list[Finding]:
    """Checks for broken encodings, control characters and HTML entities.

    With "none" as `data.bleu_tokenizer`, the entities of Moses's tokenizer are allowed.
    """
    defects = {
        "encoding": (
            _BROKEN,
            'contain U+FFFD or wrongly decoded text, such as "Ã¤" for "ä". The model would '
            "learn it: convert the original to UTF-8 again.",
        ),
        "control characters": (
            _CONTROL,
            "contain control characters or line separators. They come from a wrong encoding or "
            "a faulty extraction, and can shift lines in other tools: remove them.",
        ),
        "HTML entities": (
            _NOT_MOSES if bleu_tokenizer == "none" else _ENTITY,
            'contain entities such as "&amp;". The model would learn to write them: unescape '
            "the text.",
        ),
    }
    return [
        finding
        for check, (pattern, message) in defects.items()
        for finding in judge(check, _lines_with(surveys, pattern.search), BROKEN, message)
    ]


def check_empty(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for lines without text, and for splits without any text."""
    findings = [
        Finding(
            "empty lines",
            f"{survey.name} has no pair with text on both sides and cannot be used: check "
            "whether these are the right files.",
            warning=True,
        )
        for survey in surveys
        if not any(pair.source.strip() and pair.target.strip() for pair in survey.sample)
    ]
    message = (
        "are empty. Such pairs are dropped in training and lower BLEU in a dev set: check "
        "whether the files still match line by line."
    )
    counts = _lines_with(surveys, lambda line: not line.strip())
    return findings or judge("empty lines", counts, EMPTY, message)


def check_length(surveys: Sequence[Survey], max_length: int) -> list[Finding]:
    """Checks for lines with too many words for any tokenizer, as a word is at least one token.

    `max_length` is `data.max_length`, in tokens with EOS.
    """
    message = (
        f"have more words than data.max_length={max_length} allows tokens, and are dropped in "
        "training (cut, in classification): split them into sentences, or raise "
        "data.max_length."
    )
    counts = _lines_with(surveys, lambda line: len(line.split()) >= max_length)
    return judge("length", counts, DROPPED, message)


def check_tokenised(surveys: Sequence[Survey], bleu_tokenizer: str = "13a") -> list[Finding]:
    """Checks for text tokenised by Moses, in all splits or in some.

    With "none" as `data.bleu_tokenizer`, it may be tokenised in all of them.
    """
    shares = _shares(surveys, _tokenised_share)
    findings = [
        Finding(
            "tokenised text",
            f"{_name(tokenised)} is tokenised ({percent(high)} of the lines that show it), but "
            f"{_name(raw)} is not ({percent(low)}). The model would be evaluated on text "
            "unlike its training text: detokenise.",
            warning=True,
        )
        for (tokenised, high), (raw, low) in _mismatches(surveys, shares)
    ]
    message = (
        'have spaces before full stops, "@-@" or "&apos;", as left by Moses\'s tokenizer. '
        "SentencePiece and sacreBLEU expect raw text: detokenise. Or, to keep and score such "
        "text, --set data.bleu_tokenizer=none."
    )
    if bleu_tokenizer == "none":
        text = "not looked for in the whole text, because of data.bleu_tokenizer=none"
        return findings or [Finding("tokenised text", text)]
    counts = _lines_with(surveys, _TOKENISED.search)
    return findings or judge("tokenised text", counts, TOKENISED, message)


def check_bleu_tokenizer(surveys: Sequence[Survey], tokenizer: str) -> list[Finding]:
    """Checks that `data.bleu_tokenizer` splits the target text into words."""
    defects = {
        _NO_BLANKS: "have no blanks between words, so BLEU takes a clause for one word: --set "
        "data.bleu_tokenizer=zh for Chinese, or char for other languages."
    }
    if tokenizer == "none":
        defects[_RAW] = (
            "have full stops or commas attached to words, which BLEU takes for other words: "
            "tokenise the text, or leave out data.bleu_tokenizer=none."
        )
    if tokenizer in ("zh", "char"):
        defects = {}
    findings = [
        finding
        for pattern, message in defects.items()
        for finding in judge(
            "BLEU tokens", _lines_with(surveys, pattern.search, ["target"]), TOKENISED, message
        )
    ]
    return [finding for finding in findings if finding.text != "none"] or findings[:1]


def check_case(surveys: Sequence[Survey]) -> list[Finding]:
    """Checks for lowercased text in one split and cased text in another."""
    shares = _shares(surveys, _capital_share)
    findings = [
        Finding(
            "case",
            f"{percent(high)} of the lines of {_name(cased)} have capital letters, but only "
            f"{percent(low)} of {_name(lower)}. The model would not know the words of one of "
            "them: lower-case both or neither.",
            warning=True,
        )
        for (cased, high), (lower, low) in _mismatches(surveys, shares)
    ]
    known = [share for share in shares.values() if share is not None]
    if not known:
        return [Finding("case", "nothing to compare")]
    text = f"at least {percent(min(known))} of the lines have capitals, on each side"
    return findings or [Finding("case", text)]


def _lines_with(
    surveys: Sequence[Survey],
    defective: Callable[[str], object],
    sides: Sequence[SideName] = SIDES,
) -> list[Count]:
    """Counts the defective lines of each survey's sample, per side."""
    counts = []
    for survey in surveys:
        for side in sides:
            bad = [pair.number for pair in survey.sample if defective(pair.text(side))]
            counts.append(survey.count(bad, len(survey.sample), f"{side} lines", side))
    return counts


def _shares(
    surveys: Sequence[Survey], share_of: Callable[[Sequence[str]], float | None]
) -> dict[Side, float | None]:
    return {(s.name, side): share_of(s.texts(side)) for s in surveys for side in SIDES}


def _name(side: Side) -> str:
    return f"{side[0]} {side[1]}"


def _tokenised_share(lines: Sequence[str]) -> float | None:
    """Returns the share of tokenised lines among those that show it; None if too few."""
    tokenised = [line for line in lines if _TOKENISED.search(line)]
    raw = sum(1 for line in lines if _RAW.search(line) and not _TOKENISED.search(line))
    return _share(len(tokenised), len(tokenised) + raw)


def _capital_share(lines: Sequence[str]) -> float | None:
    """Returns the share of lines in cased scripts that have capitals; None if too few."""
    cased = [line for line in lines if line.lower() != line.upper()]
    return _share(sum(1 for line in cased if line != line.lower()), len(cased))


def _share(number: int, total: int) -> float | None:
    return number / total if total >= MIN_EVIDENCE else None


def _mismatches(
    surveys: Sequence[Survey], shares: Mapping[Side, float | None]
) -> Iterator[tuple[tuple[Side, float], tuple[Side, float]]]:
    """Yields (side, share) of train and another split that differ widely, the higher first."""
    for survey in surveys[1:]:
        for name in SIDES:
            train, other = (surveys[0].name, name), (survey.name, name)
            train_share, other_share = shares[train], shares[other]
            if train_share is None or other_share is None:
                continue
            if train_share - other_share > MISMATCH:
                yield (train, train_share), (other, other_share)
            elif other_share - train_share > MISMATCH:
                yield (other, other_share), (train, train_share)
