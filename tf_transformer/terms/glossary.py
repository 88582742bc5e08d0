"""Glossaries: terms, and the translations that they must have."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Self

from tf_transformer.base.errors import UserError, quoted
from tf_transformer.config.settings import require
from tf_transformer.data.text import read_lines
from tf_transformer.terms.spans import TOKEN, Span

logger = logging.getLogger(__name__)


class Glossary:
    """Terms and their translations; a term without capitals matches in any case.

    The longest term that begins at a word wins; it begins and ends at the borders of words.

    Raises:
        UserError: for a term that is empty, or has two translations.
    """

    def __init__(self, terms: Iterable[Sequence[str]], name: str = "`glossary`") -> None:
        self._targets: dict[str, str] = {}
        self._by_first: dict[str, list[str]] = {}
        for number, (source, target) in enumerate(terms, start=1):
            where = f"Received: {quoted(source)} and {quoted(target)}, entry {number}."
            if not all(isinstance(text, str) and text.strip() for text in (source, target)):
                raise UserError(f"{name} must have a term and its translation. {where}")
            source, target = source.strip(), target.strip()
            if self._targets.setdefault(source, target) != target:
                raise UserError(
                    f"{name} must have one translation for a term: leave out "
                    f"{quoted(self._targets[source])} or the other. {where}"
                )
            self._by_first.setdefault(_first(source), []).append(source)
        for terms_of_word in self._by_first.values():
            terms_of_word.sort(key=len, reverse=True)

    def __len__(self) -> int:
        return len(self._targets)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Reads a table of terms, source and target; UserError for other lines."""
        lines = enumerate(read_lines(path), start=1)
        rows = [(number, line) for number, line in lines if line.strip()]
        for number, line in rows:
            if [bool(cell.strip()) for cell in line.split("\t")] != [True, True]:
                raise UserError(
                    f"Each line of {path} must have a term, a tab and its translation. "
                    f"Received: {quoted(line)}, line {number}."
                )
        if not rows:
            logger.warning("%s has no terms", path)
        return cls([line.split("\t") for _, line in rows], str(path))

    def spans(self, text: str) -> Iterator[Span]:
        """Yields the longest term at each word of a text; they may overlap."""
        for word in TOKEN.finditer(text):
            for term in self._by_first.get(word[0].casefold(), ()):
                start, end = word.start(), word.start() + len(term)
                written = text[start:end]
                same = written == term or (
                    term.islower() and written.casefold() == term.casefold()
                )
                whole = not (text[end - 1 : end].isalnum() and text[end : end + 1].isalnum())
                if same and whole:
                    yield Span(start, end, "term", self._targets[term])
                    break


def _first(term: str) -> str:
    match = TOKEN.match(term)
    return match[0].casefold() if match else term


def as_glossary(glossary: Mapping[str, str] | str | Path | Glossary | None) -> Glossary | None:
    """Returns a dictionary or a file as a `Glossary`."""
    kinds = Mapping | str | Path | Glossary | None
    require(isinstance(glossary, kinds), "glossary", "a dictionary or a file", glossary)
    if isinstance(glossary, str | Path):
        return Glossary.read(Path(glossary))
    return Glossary(glossary.items()) if isinstance(glossary, Mapping) else glossary
