"""Defects of lines and pairs, which `doctor` counts and `doctor --clean` leaves out."""

import math
import re
from array import array
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from statistics import median

from tf_transformer.config import DataConfig
from tf_transformer.data.text import CONTROL, is_visible, text_key
from tf_transformer.terms.spans import differences

SAMPLE_PAIRS = 100_000  # pairs of a split held in memory at most
DUPLICATE, OVERLAP = "duplicates", "overlap"  # defects of pairs that others show
MAX_SKEW = 3.0  # factor by which a pair's length ratio may differ from the median
SKEW_FROM = 20  # characters; in shorter pairs a single word changes the ratio too much

# U+FFFD replaces bytes that could not be decoded. The rest is UTF-8 decoded as Latin-1 or
# Windows-1252: the first byte of a letter, then others. Some are marks that may stand behind
# a letter of another language, so these need more to be broken: "HYVÄÄ”", "été\u00a0»".
_NEXT = "[\u0080-\u00bf€‚ƒ„…†‡ˆ‰Š‹ŒŽ‘’“”•–—˜™š›œžŸ]"
_SURE = f"(?![\u00a0“”‘’…«»‹›–—]){_NEXT}"
_BROKEN = re.compile(
    "[Â-ð\ufffd](?:(?<=\ufffd)|(?<=ð)[\u009fŸ]|(?<=â)[\u0080€]"
    f"|(?<=[ÂÃÄÅÎÏÐÑ])(?!(?<=[A-ZÀ-Þ\"'(„“”‚‘’«».].)[“”‘’…«»‹›](?!\\w)){_NEXT}"
    f"|(?<=[Â-ß])(?!\u00a0){_NEXT}[Â-ß](?!\u00a0){_NEXT}"
    f"|(?<=[à-ï])(?![\u00a0¹²³]){_NEXT}(?:{_SURE}|{_NEXT}[à-ï](?!\u00a0){_NEXT}{{2}}))"
)
# With Unicode's line separators.
_CONTROL = re.compile(f"[{CONTROL}\u2028\u2029]")
_ENTITY = re.compile(r"&(?:[a-zA-Z]{2,8}|#\d{2,6}|#x[0-9a-fA-F]{2,5});")
_NOT_MOSES = re.compile(rf"(?!&(?:amp|apos|quot|lt|gt|#124|#91|#93);){_ENTITY.pattern}")


def line_defects(data: DataConfig) -> dict[str, Callable[[str], object]]:
    """Returns what finds each defect of a line; entities of Moses's tokenizer are none."""
    entity = _NOT_MOSES if data.bleu_tokenizer == "none" else _ENTITY
    return {
        "empty lines": _is_blank,
        "encoding": _BROKEN.search,
        "control characters": _CONTROL.search,
        "HTML entities": entity.search,
        "length": partial(_has_words, data.max_length),
    }


def _is_blank(line: str) -> bool:
    return not is_visible(line)


def _has_words(number: int, line: str) -> bool:
    return len(line.split()) >= number


def usual_ratio(pairs: Iterable[Sequence]) -> float:
    """Returns the median of log(source characters / target characters); 0 without any."""
    ratios = (_log_ratio(source, target) for source, target, *_ in pairs)
    return median([ratio for ratio in ratios if ratio is not None] or [0.0])


def is_skewed(source: str, target: str, usual: float) -> bool:
    """Tells whether a pair's length ratio is off the usual one by `MAX_SKEW` or more."""
    ratio = _log_ratio(source, target)
    return ratio is not None and abs(ratio - usual) > math.log(MAX_SKEW)


def _log_ratio(source: str, target: str) -> float | None:
    """Returns log(source characters / target characters); None for short or empty text."""
    if max(len(source), len(target)) < SKEW_FROM or not (source and target):
        return None
    return math.log(len(source) / len(target))


def is_copy(source: str, target: str) -> bool:
    """Tells whether both sides are the same text, with letters."""
    return source.strip() == target.strip() and any(map(str.isalpha, source))


# --- Languages -------------------------------------------------------------------------------

LEARNED_PAIRS = 10_000  # as many are enough, and take a second
_ROUNDS = 2  # the second counts pairs that the first finds swapped the other way round
_RARE = 5  # occurrences below which a word says nothing
_CLEAR = 3.0  # sum of log-ratios from which a line is in a language
_TELLING = 0.8  # share of lines that must be clear: dialects and paraphrases are not

_WORD = re.compile(r"[^\W\d_]+")
_ASCII = frozenset(map(chr, range(128)))


class Languages:
    """Languages of sources and targets, learnt from pairs of which most are right.

    A line's score is the sum over its words, and its characters beyond ASCII, of log(lines of
    sources / lines of targets that have it). If the sides cannot be told apart, no pair has a
    fault.
    """

    def __init__(self, pairs: Sequence[Sequence]) -> None:
        step = max(1, len(pairs) // LEARNED_PAIRS)
        marks = [(_marks(source), _marks(target)) for source, target, *_ in pairs[::step]]
        self._weights: dict[str, float] = {}
        for _ in range(_ROUNDS):
            ours: Counter[str] = Counter()
            theirs: Counter[str] = Counter()
            for pair in marks:
                source, target = pair[::-1] if self._fault(*pair) == "swapped" else pair
                ours.update(source)
                theirs.update(target)
            self._weights = {
                mark: math.log((ours[mark] + 0.5) / (theirs[mark] + 0.5))
                for mark in {*ours, *theirs}
                if ours[mark] + theirs[mark] >= _RARE
            }
        clear = sum(abs(self._score(line)) > _CLEAR for pair in marks for line in pair)
        right = clear - sum(self._fault(*pair) not in ("", "swapped") for pair in marks)
        if right < _TELLING * 2 * len(marks):
            self._weights = {}

    @property
    def known(self) -> bool:
        """Tells whether the sides can be told apart."""
        return bool(self._weights)

    def fault(self, source: str, target: str) -> str:
        """Returns "swapped", "source", "target" for a side in the other's language, or ""."""
        return self._fault(_marks(source), _marks(target)) if self.known else ""

    def _fault(self, source: set[str], target: set[str]) -> str:
        ours, theirs = self._score(source) < -_CLEAR, self._score(target) > _CLEAR
        return "swapped" if ours and theirs else "source" * ours or "target" * theirs

    def _score(self, marks: set[str]) -> float:
        return sum(self._weights.get(mark, 0.0) for mark in marks)


def _marks(line: str) -> set[str]:
    line = line.casefold()
    return {*_WORD.findall(line), *(set(line) - _ASCII)}


# --- All of them -----------------------------------------------------------------------------


class Judge:
    """Finds the defects of pairs, by what is usual in a sample; other processes may have it."""

    def __init__(self, sample: Sequence[Sequence], data: DataConfig, numbers: bool) -> None:
        self._usual, self._languages = usual_ratio(sample), Languages(sample)
        self._of_lines, self._numbers = line_defects(data), numbers

    def defect(self, source: str, target: str) -> str:
        """Names the first defect of a pair; "" if it has none."""
        for name, defective in self._of_lines.items():
            if defective(source) or defective(target):
                return name
        if is_copy(source, target):
            return "copies"
        if is_skewed(source, target, self._usual):
            return "length ratio"
        if self._numbers and any(
            each.startswith("number ") for each in differences(source, target)
        ):
            return "numbers"
        side = self._languages.fault(source, target)
        return f"languages ({side})" if side else ""

    def judged(self, pairs: Sequence[tuple[str, str]]) -> tuple[list[str], array]:
        """Returns the defect of each pair, and the two hashes of each that has none."""
        defects, keys = [self.defect(*pair) for pair in pairs], array("Q")
        for defect, pair in zip(defects, pairs, strict=True):
            if not defect:
                keys.extend(map(text_key, pair))
        return defects, keys
