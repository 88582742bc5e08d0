"""Plain parallel text, optionally gzipped: lines, pairs, corpora by name, and their identity.

A corpus is two files of aligned lines, one for each language, or a table of pairs.
"""

import codecs
import glob
import gzip
import hashlib
import itertools
import logging
import os
import re
import unicodedata
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import IO, Any, Generic, Literal, TypeVar

from tf_transformer.base.errors import UserError
from tf_transformer.base.files import replacing, sha256
from tf_transformer.config import DataConfig
from tf_transformer.config.settings import split_tags

SideName = Literal["source", "target"]
SIDES: tuple[SideName, SideName] = ("source", "target")
_INVISIBLE = ("Zs", "Zl", "Zp", "Cc", "Cf")
CONTROL = "\x00-\x08\x0a-\x1f\x7f-\x9f"  # of ASCII and Latin-1, but the tab
# U+FFFD stands for bytes that are no text.
NOT_TEXT = re.compile(f"[\ufffd{CONTROL}]")
BLOCK_BYTES = 1 << 16  # capacity of a pipe on Linux
_MARK = "\ufeff"  # a byte order mark, which is no text inside a file

logger = logging.getLogger(__name__)

Role = Literal["train", "valid"]
ROLES: dict[Role, str] = {"train": "training text", "valid": "dev text"}


def resolve_prefix(prefix: str | Path, language: str) -> Path:
    """Finds PREFIX.language or PREFIX.language.gz; UserError names the languages there are."""
    plain, zipped = Path(f"{prefix}.{language}"), Path(f"{prefix}.{language}.gz")
    for path in (plain, zipped):
        if path.is_file():
            return path
    if Path(prefix).is_file():
        hint = f"{prefix} is a file: give its name without the language."
    else:
        start = glob.escape(plain.name.removesuffix(language))
        names = sorted(file.name for file in plain.parent.glob(f"{start}*"))
        hint = f"There is: {', '.join(names) or 'nothing that begins so'}."
    raise UserError(f"There is no {plain} and no {zipped}. {hint}")


def is_visible(text: str) -> bool:
    """Tells whether text has a character other than spaces, control and format characters."""
    return any(unicodedata.category(char) not in _INVISIBLE for char in text)


def utf8(text: str | bytes) -> bytes:
    """Encodes text in which a lone surrogate counts as invalid UTF-8, so as U+FFFD."""
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def well_formed(text: str) -> str:
    """Returns the text with U+FFFD for each byte of a lone surrogate, as TensorFlow has it."""
    return utf8(text).decode("utf-8", "replace")


def read_lines(path: Path | int) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, plain or .gz, without line ends.

    `path` may be an open file descriptor, such as 0 for stdin. Only "\n" and "\r\n" end a line:
    the other line breaks of `str.splitlines` and text mode would misalign all later pairs. A
    byte order mark at the start is dropped. Raises UserError if the file cannot be read, is a
    damaged gzip file, is not UTF-8, or has the line ends of old Macs.
    """
    for number, line in enumerate(_read_raw(path), start=1):
        yield line_of(path, number, line)


def read_text(path: Path | int) -> str:
    """Returns a UTF-8 file, or a descriptor, as `read_lines` reads it, with its line ends."""
    return "".join(itertools.starmap(partial(_decoded, path), enumerate(_read_raw(path), 1)))


def arriving_lines(descriptor: int) -> Iterator[list[str]]:
    """Yields a pipe's lines as they arrive: waits for one, then takes all that came with it."""
    number = 0
    for lines in _read_arriving(descriptor):
        decoded = (_decoded(descriptor, number + i, line) for i, line in enumerate(lines, 1))
        yield [line.removesuffix("\r") for line in decoded]
        number += len(lines)


def _read_arriving(descriptor: int) -> Iterator[list[bytes]]:
    parts = []  # of a line that is still incomplete
    with read_errors(descriptor):
        while block := os.read(descriptor, BLOCK_BYTES):
            parts.append(block)
            if b"\n" in block:
                *lines, rest = b"".join(parts).split(b"\n")
                parts = [rest] if rest else []
                yield lines
    if parts:
        yield [b"".join(parts)]


def line_of(path: Path | str | int, number: int, line: bytes) -> str:
    """Decodes a line of `raw_lines`, from 1, without its end; UserError if it is not UTF-8."""
    return _decoded(path, number, line).removesuffix("\n").removesuffix("\r")


def _decoded(path: Path | str | int, number: int, line: bytes) -> str:
    if number == 1:
        line = line.removeprefix(codecs.BOM_UTF8)
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(
            f"{_name(path)}:{number}: text must be UTF-8. Received: byte "
            f"0x{line[error.start]:02x} at byte {error.start + 1} of the line. "
            "Convert the file, for example with iconv."
        ) from None


def _read_raw(path: Path | int) -> Iterator[bytes]:
    with read_errors(path), _opened(path) as file:
        yield from raw_lines(path, file)


def raw_lines(path: Path | str | int, file: IO[bytes]) -> Iterator[bytes]:
    """Yields the lines of an open file; UserError, which names `path`, as `read_lines`."""
    first = file.readline()
    if not first.endswith(b"\n") and b"\r" in first[:-1]:
        raise UserError(
            f"{_name(path)}: lines must end in LF or CRLF. Received: CR alone, as on old "
            r"Macs. Convert the file, for example with tr '\r' '\n'."
        )
    if first:
        yield first
    yield from iter(file.readline, b"")  # Beam's files can be read no other way


def _opened(path: Path | int) -> Any:
    if isinstance(path, Path) and path.suffix == ".gz":
        return gzip.open(path)
    return open(path, "rb", closefd=path != 0)


@contextmanager
def read_errors(path: Path | str | int) -> Iterator[None]:
    """Turns errors of reading a file, plain or .gz, into a UserError."""
    try:
        yield
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is not a complete gzip file: {error}.") from None
    except OSError as error:
        raise UserError(f"{_name(path)} cannot be read: {error.strerror or error}.") from None


def _name(path: Path | str | int) -> str:
    return "stdin" if path == 0 else str(path)


def read_pairs(source_file: Path, target_file: Path) -> Iterator[tuple[str, str]]:
    """Yields pairs of line i of a source file and line i of its target file.

    Raises UserError if the files differ in their number of lines, or as `read_lines` does.
    """
    sources, targets = read_lines(source_file), read_lines(target_file)
    for number, (source, target) in enumerate(itertools.zip_longest(sources, targets)):
        if source is None or target is None:
            source_count = number + sum(1 for _ in sources) + (source is not None)
            target_count = number + sum(1 for _ in targets) + (target is not None)
            raise UserError(
                "Parallel files must have the same number of lines. Received: "
                f"{source_file} with {source_count:,} and {target_file} with {target_count:,}."
            )
        yield source, target


def read_some_pairs(source: str | Path, target: str | Path) -> list[tuple[str, str]]:
    """Returns the pairs of `read_pairs`; UserError also if there are none."""
    pairs = list(read_pairs(Path(source), Path(target)))
    if not pairs:
        raise UserError(f"{source} must have at least one sentence. Received: none.")
    return pairs


def write_pairs(
    prefix: Path, languages: Sequence[str], pairs: Iterable[tuple[str, str]]
) -> str:
    """Writes pairs to PREFIX.LANGUAGE, a line each, unless that is their content already."""
    sources, targets = (Path(f"{prefix}.{language}") for language in languages)
    with (
        replacing(sources, if_changed=True) as source_path,
        replacing(targets, if_changed=True) as target_path,
        source_path.open("w", encoding="utf-8") as source_file,
        target_path.open("w", encoding="utf-8") as target_file,
    ):
        for source, target in pairs:
            source_file.write(f"{source}\n")
            target_file.write(f"{target}\n")
    return str(prefix)


def count_lines(path: Path) -> int:
    """Counts the lines of a file, plain or .gz; UserError if it cannot be read."""
    return sum(1 for _ in _read_raw(path))


# A language code, optionally with script and region, as in zh-Hans-CN and pt-BR: their capitals
# distinguish its hyphens from the one between two languages.
_LANGUAGE = r"([A-Za-z]\w*(?:-[A-Z][a-z]{3}\b)?(?:-(?:[A-Z]{2}|\d{3})\b)?)"


@dataclass(frozen=True)
class ParallelText:
    """Sentence pairs of a text: two files of aligned lines, or a table.

    A table is a single file, which has a source, a TAB and a target on each line.
    """

    name: str  # in the configuration
    source: Path
    target: Path
    languages: tuple[str, str]
    tag: str = ""  # text before each source, such as "<2de>"

    @property
    def keys(self) -> list[str]:
        """Keys that select its tags: target language, name, and last parts of the name."""
        parts = self.name.split("/")
        return [self.languages[1], *("/".join(parts[i:]) for i in range(len(parts)))]

    def file(self, side: SideName) -> Path:
        """Returns the file of a side."""
        return self.source if side == "source" else self.target

    @property
    def files(self) -> str:
        """Names its files in a message."""
        return " and ".join(dict.fromkeys(map(str, (self.source, self.target))))

    def plain_pairs(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs without the tag.

        Raises UserError if a file cannot be read, the files differ in length, or a line of a
        table does not have two columns.
        """
        if is_table(self.source):
            return _read_table(self.source)
        return read_pairs(self.source, self.target)

    def tagged(self, source: str) -> str:
        """Returns a source with the tag before it, unless it is blank."""
        return f"{self.tag} {source}" if self.tag and is_visible(source) else source

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Reads the pairs, with the tag before each source that is not blank."""
        return ((self.tagged(source), target) for source, target in self.plain_pairs())

    def check(self) -> None:
        """Reads all pairs before any slow work; warns of byte order marks inside the text.

        Raises UserError if `plain_pairs` does, or no pair has text on both sides.
        """
        has_text, marked, first = False, 0, 0
        for number, (source, target) in enumerate(self.plain_pairs(), start=1):
            has_text = has_text or (is_visible(source) and is_visible(target))
            if _MARK in source or _MARK in target:
                marked, first = marked + 1, first or number
        if marked:
            logger.warning(
                "%s: U+FEFF inside %s lines, the first %d: a byte order mark, as where files "
                "were joined; remove it", self.files, f"{marked:,}", first,
            )  # fmt: skip
        if not has_text:
            raise UserError(
                f"There is no pair with text on both sides in {self.files}: leave it "
                "out, or check whether it is the right text."
            )

    def __len__(self) -> int:
        return count_lines(self.source)


def _read_table(path: Path) -> Iterator[tuple[str, str]]:
    lines = read_lines(path)
    for number, line in enumerate(lines, start=1):
        columns = line.split("\t")
        if len(columns) != 2:
            columns_found = f"{len(columns)} columns. Choose two, for example with cut -f 1,2."
            raise UserError(
                f"{path}:{number}: a line of a table must be a source, a TAB and a target. "
                f"Received: {blank_line(line, lines) or columns_found}"
            )
        yield columns[0], columns[1]


def blank_line(line: str, rest: Iterable[str]) -> str:
    """Describes a line of a table, before the `rest`, if it is blank; "" if it is not."""
    if line.strip():
        return ""
    return f"a blank {'' if any(map(str.strip, rest)) else 'last '}line. Remove it."


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
    """Finds the files of corpora, PREFIX or FILE.tsv[.gz]; UserError if one is missing.

    ":SOURCE-TARGET" follows the name of one whose languages are not those of `data`.
    """
    texts = []
    for name in names:
        path, languages = split_name(name, data)
        if is_table(path):
            source = target = path
        else:
            source, target = (resolve_prefix(path, each) for each in languages)
        texts.append(ParallelText(name, source, target, languages, corpus_tag(name, data)))
    return texts


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


def content_hash(path: Path) -> str:
    """Returns the SHA-256 of a file, unpacked if it is a .gz; UserError if it is unreadable."""
    with read_errors(path), _opened(path) as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def text_files(data: DataConfig, role: Role) -> list[Path]:
    """Lists the files of a configuration, sources before targets; none for the built-in corpus.

    Without languages, the names are files, not corpora. Raises UserError if a corpus lacks one.
    """
    names = getattr(data, role)
    if not data.source:
        return [Path(name) for name in names]
    texts = corpora(names, data)
    sources = [text.source for text in texts]
    return [*sources, *(text.target for text in texts if not is_table(text.source))]


@dataclass(frozen=True)
class DataFile:
    """A text file that a configuration names."""

    role: Role
    path: str  # the expected path if the file is missing
    sha256: str | None  # of its content; None if it is missing

    def lines(self) -> int | None:
        """Returns the number of lines; None if the file is missing."""
        return None if self.sha256 is None else count_lines(Path(self.path))


def data_files(data: DataConfig) -> list[DataFile]:
    """Lists the text files that a configuration names; none for the built-in corpus.

    Without languages, the configured names are files, not corpora.
    """
    return [
        _data_file(role, path, language)
        for role in ROLES
        for name in getattr(data, role)
        for path, languages in [split_name(name, data)]
        for language in ([""] if not languages[0] or is_table(path) else languages)
    ]


def _data_file(role: Role, path: Path, language: str) -> DataFile:
    try:
        file = resolve_prefix(path, language) if language else path
        return DataFile(role, str(file), sha256(file))
    except (UserError, OSError):
        return DataFile(role, f"{path}.{language}" if language else str(path), None)


def identity(files: Sequence[Path]) -> str:
    """Returns a hash of the content of files, in order; "" if there are none."""
    if not files:
        return ""
    return hashlib.sha256("\n".join(map(content_hash, files)).encode()).hexdigest()[:16]


def text_key(text: str) -> int:
    """Returns 64 bits of a hash of a text, whatever its spaces; the same in every process."""
    words = utf8(" ".join(text.split()))
    return int.from_bytes(hashlib.blake2b(words, digest_size=8).digest(), "little")


Item = TypeVar("Item")


def in_chunks(items: Iterable[Item], *sizes: int) -> Iterator[list[Item]]:
    """Yields lists of these sizes, repeating the last size; the last list may be shorter."""
    items = iter(items)
    for size in itertools.chain(sizes, itertools.repeat(sizes[-1])):
        if not (chunk := list(itertools.islice(items, size))):
            return
        yield chunk


class Sample(Generic[Item]):
    """A uniform sample of numbered items whose sizes are at most `most` in all.

    It has the items whose hashes of their numbers are below a bound, which is halved as often
    as they are too many: so it is the same in any order, and however it was put together.
    """

    def __init__(self, most: int) -> None:
        self._most, self._bound, self._total = most, 1 << 64, 0
        self._rows: list[tuple[int, int, Item]] = []  # hash, size, item

    def offer(self, number: int, item: Item, size: int = 1) -> None:
        """Takes an item, or not; perhaps others leave."""
        if (key := _mixed(number)) < self._bound:
            self._rows.append((key, size, item))
            self._total += size
            if self._total > self._most:
                self._shrink()

    def add(self, other: "Sample[Item]") -> "Sample[Item]":
        """Takes the items of another sample, and returns this one."""
        self._bound = min(self._bound, other._bound)
        self._rows += other._rows
        self._shrink()
        return self

    def _shrink(self) -> None:
        self._rows = [row for row in self._rows if row[0] < self._bound]
        self._total = sum(size for _, size, _ in self._rows)
        if self._total > self._most:
            self._bound //= 2
            self._shrink()

    def items(self) -> list[Item]:
        """Returns the items, in the order in which they came."""
        return [item for *_, item in self._rows]


def _mixed(number: int) -> int:
    """Returns 64 bits that look random, others for each number (Steele 2014, SplitMix)."""
    number = (number + 0x9E3779B97F4A7C15) % (1 << 64)
    number = (number ^ number >> 30) * 0xBF58476D1CE4E5B9 % (1 << 64)
    number = (number ^ number >> 27) * 0x94D049BB133111EB % (1 << 64)
    return number ^ number >> 31
