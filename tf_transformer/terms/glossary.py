"""Glossaries: terms, and the translations that they must have."""

import csv
import logging
import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.config.settings import require
from tf_transformer.data.text import read_lines
from tf_transformer.terms.spans import SLOT, Span

logger = logging.getLogger(__name__)

# Scripts without blanks: Thai to Burmese, Khmer, kana and Han. Katakana is a word, though.
RUN = r"[\u0e00-\u109f\u1780-\u17ff\u3005-\u30ff\u3400-\u9fff\U00020000-\U0003ffff]"
_BORDER = re.compile(rf"(?!(?<=[ァ-ー])[ァ-ー])(?:(?<={RUN})|(?={RUN}))")
# A character with its accents, also those of Arabic and kana, and a syllable of Korean.
_CHARACTER = re.compile(r"\s+|&amp;|\S[\u0300-\u036f\u0653-\u0655\u1160-\u11ff\u3099\u309a]*")
_PARTICLE = re.compile(  # of Korean
    "(?:[은는이가을를의에께로와과랑도만들]|에서|에게|으로|하고|부터|까지|처럼|보다|입니다){1,2}(?![가-힣])"
)
# What a word is part of: man-made, C#, C++.
_TIED = re.compile(r"(?<=\w[-‐‑])(?=\w)|(?<=\w)(?=[-‐‑]\w|#|\+{1,2}(?!\w))")
_LANGUAGE = "ar|cs|da|de|el|en|es|fi|fr|he|hi|hu|it|ja|ko|nl|pl|pt|ro|ru|sv|th|tr|uk|vi|zh"
_HEADER = re.compile(rf"(?i)source|src|target|tgt|term|translation|(?:{_LANGUAGE})([-_]\w+)?")


class Glossary:
    """Terms and their translations; a term without capitals matches in any case.

    The longest term that begins at a word wins; it begins and ends at the borders of words.
    A translation may have several forms, of which one must stand there: "Netz|Netze|Netzes".

    Attributes:
        terms: their translations, by terms.
        found: the terms that texts have had so far.

    Raises:
        UserError: for a term that is empty, or has two translations or a slot as one.
    """

    def __init__(self, terms: Iterable[Sequence[str]], name: str = "`glossary`") -> None:
        self.terms: dict[str, str] = {}
        self.found: set[str] = set()
        for number, (source, target) in enumerate(terms, start=1):
            where = f"Received: {quoted(source)} and {quoted(target)}, entry {number}."
            texts = [isinstance(text, str) and text.strip() for text in (source, target)]
            texts += [form.strip() for form in str(target).split("|")]
            if not all(texts) or SLOT.search(target):
                raise UserError(
                    f"{name} must have a term and its translation, which is no slot. {where}"
                )
            source, target = _folded(source.strip())[0], target.strip()
            if self.terms.setdefault(source, target) != target:
                raise UserError(
                    f"{name} must have one translation for a term: leave out "
                    f"{quoted(self.terms[source])} or the other. {where}"
                )
        self._in_any_case = {term.casefold(): term for term in self.terms if term.islower()}
        self._sizes = sorted({*map(len, self.terms)}, reverse=True)

    def __len__(self) -> int:
        return len(self.terms)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a table of terms, source and target; UserError for other lines.

        A first line that names both is skipped, further columns and lines of `#` are ignored.
        """
        has_commas, rows = path.suffix.lower() == ".csv", []
        for number, line in enumerate(read_lines(path), start=1):
            if not line.strip() or line.startswith("#"):
                continue
            cells = next(csv.reader([line])) if has_commas else line.split("\t")
            if [bool(cell.strip()) for cell in cells[:2]] != [True, True]:
                raise UserError(
                    f"Each line of {path} must have a term, a tab and its translation, or in "
                    ".csv a comma; export .tbx as such a table. "
                    f"Received: {quoted(line)}, line {number}."
                )
            rows.append(cells)
        if rows and all(_HEADER.fullmatch(cell.strip()) for cell in rows[0][:2]):
            logger.info(
                "%s: the first line is skipped, a header: %s", path, ", ".join(rows.pop(0))
            )
        if more := sum(len(cells) > 2 for cells in rows):
            logger.info("%s: columns after the second are ignored, lines: %d", path, more)
        if not rows:
            logger.warning("%s has no terms", path)
        return cls([cells[:2] for cells in rows], str(path))

    def never_found(self) -> str:
        """Returns a line on the terms that no text has had; "" if there are none."""
        terms = [term for term in self.terms if term not in self.found]
        line = f"terms of the glossary never found: {len(terms)} of {len(self)}, such as "
        return (line + ", ".join(terms[:3])) * bool(terms)

    def spans(self, text: str) -> Iterator[Span]:
        """Yields the longest term at each word of a text; they may overlap."""
        folded, places = _folded(text)
        for start in range(len(folded)):
            for size in () if _is_inside(folded, start) else self._sizes:
                written = folded[start : start + size]
                term, end = written, start + len(written)
                if term not in self.terms:
                    term = self._in_any_case.get(written.casefold(), "")
                goes_on = _is_inside(folded, end) and not _PARTICLE.match(folded, end)
                if term and not goes_on:
                    self.found.add(term)
                    forms = [form.strip() for form in self.terms[term].split("|")]
                    target, *others = forms
                    yield Span(places[start], places[end], "term", target, tuple(others))
                    break


def occurrences(form: str, text: str) -> int:
    """Returns how often a text has a word or words, not inside of others."""
    begins, ends = rf"(?<!\w)|(?={RUN})|(?<={RUN})", rf"(?!\w)|(?<={RUN})|(?={RUN})"
    return len(re.findall(f"(?:{begins}){re.escape(form)}(?:{ends})", text))


def _folded(text: str) -> tuple[str, list[int]]:
    """Returns a text as terms are compared, and where in it each character stands.

    Spaces are one, accents one with their letters, `'` and `&` as they are typed.
    """
    folded, places = "", []
    for match in _CHARACTER.finditer(text):
        one = " " if match[0].isspace() else "&" if match[0] == "&amp;" else match[0]
        one = unicodedata.normalize("NFC", one).replace("’", "'")
        folded += one
        places += [match.start()] * len(one)
    return folded, [*places, len(text)]


def _is_inside(text: str, place: int) -> bool:
    """Tells whether a place is inside a word, and not at its border."""
    both = text[place - 1 : place + 1] if 0 < place < len(text) else ". "
    marks = [unicodedata.category(each)[0] == "M" or each in "_\u200c\u200d" for each in both]
    letters = [each.isalnum() or mark for each, mark in zip(both, marks, strict=True)]
    if marks[1] or (all(letters) and not _BORDER.match(text, place)):
        return True
    return bool(_TIED.match(text, place))


def as_glossary(glossary: Mapping[str, str] | str | Path | Glossary | None) -> Glossary | None:
    """Returns a dictionary or a file as a `Glossary`."""
    kinds = Mapping | str | Path | Glossary | None
    require(isinstance(glossary, kinds), "glossary", "a dictionary or a file", glossary)
    if isinstance(glossary, str | Path):
        return Glossary.read(Path(glossary))
    return Glossary(glossary.items()) if isinstance(glossary, Mapping) else glossary
