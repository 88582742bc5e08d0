"""Corpora named by --train and --valid: files, languages, and the tag of their sources."""

import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tf_transformer.config import DataConfig
from tf_transformer.config.data import split_tags
from tf_transformer.data.corpus import (
    SideName,
    count_lines,
    is_visible,
    read_lines,
    read_pairs,
    resolve_prefix,
)
from tf_transformer.errors import UserError

# A language code, optionally with script and region, as in zh-Hans-CN and pt-BR: their capitals
# distinguish its hyphens from the one between two languages.
_LANGUAGE = r"([A-Za-z]\w*(?:-[A-Z][a-z]{3}\b)?(?:-(?:[A-Z]{2}|\d{3})\b)?)"


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs of a text: two files of aligned lines, or a table.

    Attributes:
        name: name in the configuration.
        source: file of the source sentences.
        target: file of the target sentences; the same file for a table, which has a source, a
            TAB and a target on each line.
        languages: languages of source and target.
        tag: text before each source, such as "<2de>"; empty for none.
    """

    name: str
    source: Path
    target: Path
    languages: tuple[str, str]
    tag: str = ""

    @property
    def keys(self) -> list[str]:
        """Keys that select its tags: target language, name, and last part of the name."""
        return [self.languages[1], self.name, self.name.rpartition("/")[2]]

    @property
    def is_table(self) -> bool:
        """True if one file holds both sides."""
        return is_table(self.source)

    def file(self, side: SideName) -> Path:
        """Returns the file of a side."""
        return self.source if side == "source" else self.target

    def plain_pairs(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs without the tag.

        Raises:
            UserError: if a file cannot be read, the files differ in length, or a line of a
                table does not have two columns.
        """
        return (
            _read_table(self.source) if self.is_table else read_pairs(self.source, self.target)
        )

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs, with the tag before each source that is not blank."""
        if not self.tag:
            return self.plain_pairs()
        return (
            (f"{self.tag} {source}" if is_visible(source) else source, target)
            for source, target in self.plain_pairs()
        )

    def check(self) -> None:
        """Reads all pairs; UserError if `plain_pairs` raises it, before any slow work."""
        for _ in self.plain_pairs():
            pass

    def __len__(self) -> int:
        return count_lines(self.source)


def _read_table(path: Path) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(read_lines(path), start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            raise UserError(
                f"{path}:{number}: a line of a table must be a source, a TAB and a target. "
                f"Received: {len(columns)} columns. Choose two, for example with cut -f 1,2."
            )
        yield columns[0], columns[1]


def split_name(name: str, data: DataConfig) -> tuple[Path, tuple[str, str]]:
    """Splits PATH:SOURCE-TARGET into the path and the languages, by default those of `data`."""
    match = re.fullmatch(f"(.+):{_LANGUAGE}-{_LANGUAGE}", name)
    if match is None:
        return Path(name), (data.source, data.target)
    return Path(match[1]), (match[2], match[3])


def is_table(path: Path) -> bool:
    """Tells whether a path is a table FILE.tsv or FILE.tsv.gz, rather than a prefix."""
    return path.name.endswith((".tsv", ".tsv.gz")) and path.is_file()


def corpora(names: Sequence[str], data: DataConfig) -> list[ParallelText]:
    """Finds the files of corpora.

    Args:
        names: PREFIX or FILE.tsv[.gz], each followed by ":SOURCE-TARGET" if its languages are
            not those of `data`.
        data: configuration with the languages and the tags.

    Raises:
        UserError: if a file is missing.
    """
    return [_corpus(name, data) for name in names]


def _corpus(name: str, data: DataConfig) -> ParallelText:
    path, languages = split_name(name, data)
    if is_table(path):
        source = target = path
    else:
        source, target = (resolve_prefix(path, each) for each in languages)
    return ParallelText(name, source, target, languages, corpus_tag(name, data))


def corpus_tag(name: str, data: DataConfig) -> str:
    """Returns the tags of a corpus, separated by spaces; "" if it has none."""
    path, languages = split_name(name, data)
    tags = split_tags(data.tag)
    keys = ParallelText(name, path, path, languages).keys
    return " ".join(dict.fromkeys(tags[key] for key in keys if key in tags))


def always_tagged(data: DataConfig) -> bool:
    """Tells whether every source in training has a tag."""
    return bool(data.train) and all(corpus_tag(name, data) for name in data.train)


def all_pairs(texts: Sequence[ParallelText]) -> Iterator[tuple[str, str]]:
    """Reads the pairs of corpora, one corpus after another."""
    return itertools.chain.from_iterable(text.pairs() for text in texts)
