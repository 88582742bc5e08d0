"""Translates a file entry by entry, and reads the result a second time before it is written.

What is done is kept in OUTPUT.part until the file is written, so that the same command goes on
after an interruption. No TensorFlow.
"""

import codecs
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple, Self

from tf_transformer.base.errors import UserError, missing_extra
from tf_transformer.base.files import replacing
from tf_transformer.data.text import utf8
from tf_transformer.terms.protection import Protection
from tf_transformer.terms.spans import ANY_NUMBER, differences
from tf_transformer.translation.files import (
    html_pages,
    po,
    second_reading,
    subtitles,
    tmx,
    xliff,
)
from tf_transformer.translation.files.entries import (
    Code,
    Document,
    Entry,
    Languages,
    Pieces,
    Tagged,
    Text,
    plain,
    tagged,
    without_codes,
)

logger = logging.getLogger(__name__)


class Found(NamedTuple):
    """A translation, and the reasons why it looks wrong."""

    text: str
    warnings: Sequence[str] = ()


# Translates texts of any number of sentences; all numbers are spans if the second is true.
Translate = Callable[[list[str], bool], Sequence[Found]]


# Returns the first difference of a file before and after but for translations, "" if none.
Compare = Callable[[bytes, bytes], str]
_Good = Sequence[tuple[Entry, Sequence[Pieces | None]]]


class Format(NamedTuple):
    """A format: its reader, and its second reading."""

    read: Callable[[bytes, Languages], Document]
    compare: Compare


_XLIFF = Format(xliff.read, second_reading.compare_xml)
_HTML = Format(html_pages.read, second_reading.compare_html)
_SUBTITLES = Format(subtitles.read, second_reading.compare_subtitles)
_PO = Format(po.read, second_reading.compare_po)
FORMATS = {
    ".po": _PO, ".pot": _PO, ".xlf": _XLIFF, ".xliff": _XLIFF,
    ".tmx": Format(tmx.read, second_reading.compare_xml), ".srt": _SUBTITLES,
    ".vtt": _SUBTITLES, ".html": _HTML, ".htm": _HTML,
}  # fmt: skip

# The tags that stand for codes, which a translator must keep.
_TAG, _VALUE = r"</?x+\d+/?>", r"\{x+\d+\}"
_CODES = ("tag", re.compile(_TAG)), ("placeholder", re.compile(_VALUE))
_CHUNK = 64  # texts between two saves
_MOST_READINGS = 200  # to find the entries that fail
_TAGS_AT_END = rf"(?:\s|{_TAG})*$"
_ENDS = re.compile(rf"(?:…|\.\.\.|[:：]|[.。])?(?={_TAGS_AT_END})")
_ALIKE = {"...": "…", "：": ":", "。": "."}
_ANY_END = re.compile(rf"[.!?…:;。！？：；,)\]}}>\"'”’»%]{_TAGS_AT_END}")


class FileReport(NamedTuple):
    """The outcome of a file.

    Attributes:
        counts: numbers of entries: `translated`, `kept` and, by their reasons, those left.
        records: entries that are left or look wrong, with file, line and reasons.
    """

    counts: Counter[str]
    records: list[dict[str, Any]]


def translate_file(
    source: Path,
    output: Path,
    translate: Translate,
    languages: Languages,
    *,
    numbers: bool = True,
    fuzzy: bool = False,
    origin: str = "",
    progress: Callable[[int, int], None] | None = None,
) -> FileReport:
    """Translates a file whose suffix is one of `FORMATS`.

    Args:
        source: the file.
        output: the file to write.
        translate: translates texts.
        languages: codes of source and target, "" where the model has no names.
        numbers: whether the model can keep all numbers as spans.
        fuzzy: marks the translations of a PO file as fuzzy.
        origin: all that the translations depend on, to go on after an interruption.
        progress: called with the numbers of texts done, and of all.

    Raises:
        UserError: for another suffix, a file that cannot be read or names other languages, or
            without the extra.
    """
    format_ = FORMATS[require_format(source)]
    document, content = _read(source, languages, fuzzy)
    with _Journal(output.with_name(f"{output.name}.part"), origin) as journal:
        texts = _translated(document, translate, numbers, journal.complete, progress)
        (written, encoding), report, is_whole = _result(
            str(source), document, content, format_, texts
        )
        if encoding != document.encoding:
            logger.warning("%s is in UTF-8, since %s lacks letters", output, document.encoding)
        with replacing(output) as temporary:
            temporary.write_bytes(written)
        if is_whole:  # else much is left that could be right
            journal.remove()
    return report


def translate_page(
    text: str, translate: Translate, languages: Languages, *, numbers: bool = True
) -> tuple[str, FileReport]:
    """Translates HTML, a page or a part of one, in memory; see `translate_file`."""
    content = codecs.BOM_UTF8 + utf8(text)  # whatever encoding the page names
    document = _document("the text", ".html", content, languages)

    def complete(texts: list[str], numbers: bool, *_: Any) -> dict[str, Found]:
        return dict(zip(texts, translate(texts, numbers), strict=True))

    texts = _translated(document, translate, numbers, complete)
    (written, _), report, _ = _result("", document, content, _HTML, texts)
    return written.removeprefix(codecs.BOM_UTF8).decode(), report


def _result(
    name: str,
    document: Document,
    content: bytes,
    format_: Format,
    translations: dict[str, Found],
) -> tuple[tuple[bytes, str], FileReport, bool]:
    """Returns the file after translation, its encoding, a report, and whether all was read."""
    right: list[tuple[bytes, str]] = []  # results that were read as the source is

    def write(good: _Good) -> tuple[bytes, str]:
        edits = [edit for entry, pieces in good for edit in entry.edits(pieces)]
        if not edits:
            return content, document.encoding
        try:
            written = document.with_edits([*edits, *document.edits])
            difference = format_.compare(content, written[0])
        except (ValueError, LookupError, AssertionError, RecursionError) as error:
            difference = " ".join(str(error).split())  # each library has its own
        if difference:
            raise UserError(f"The result is not read as the source is: {difference}")
        right[:] = [written]
        return written

    outcomes = [(entry, *_pieces_of(entry, translations)) for entry in document.entries]
    good = [(entry, pieces) for entry, pieces, reason, _ in outcomes if not reason]
    readings, faults = iter(range(_MOST_READINGS)), dict[int, str]()
    sound = _sound(good, write, readings, faults)
    # One reading has found all of them right, or the right ones are read together now.
    written = right[-1] if sound is good and right else write(sound)
    report = _report(name, document, outcomes, {id(entry) for entry, _ in sound}, faults)
    return written, report, next(readings, None) is not None


def _sound(
    good: _Good, write: Callable[[_Good], Any], readings: Iterator[int], faults: dict[int, str]
) -> _Good:
    """Returns the entries with which all else is as it was; halves find those that fail."""
    if not good or next(readings, None) is None:
        return []
    try:
        write(good)
        return good
    except UserError as error:
        half = len(good) // 2
        if not half:
            faults[id(good[0][0])] = str(error)
            return []
    return [
        each
        for some in (good[:half], good[half:])
        for each in _sound(some, write, readings, faults)
    ]


def searcher(search: Callable[..., Any], kept: Protection, can_keep: bool) -> Translate:
    """Returns `Translator.translate_text` as it translates texts with tags for codes."""
    kept = replace(kept, patterns=(*_CODES, *kept.patterns))

    def translate(texts: list[str], numbers: bool) -> list[Found]:
        spans = {"protect": kept.with_numbers() if numbers else kept} if can_keep else {}
        found = search(texts, **spans)
        warnings = ([w for _, best in each.sentences for w in best.warnings] for each in found)
        return [Found(*row) for row in zip(found, warnings, strict=True)]

    return translate


def require_format(path: Path) -> str:
    """Returns the suffix of a file that can be translated; UserError for another."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise UserError(
            f"The file must end in {', '.join(FORMATS)}. Received: {path}. Plain text is for "
            "`translate_text`, or stdin: `tf-transformer translate RUN --text < FILE`."
        )
    return suffix


def _read(path: Path, languages: Languages, fuzzy: bool) -> tuple[Document, bytes]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror}.") from None
    return _document(str(path), path.suffix, content, languages, fuzzy), content


def _document(
    name: str, suffix: str, content: bytes, languages: Languages, fuzzy: bool = False
) -> Document:
    """Reads a file; also tries the second reading, which must find it equal to itself."""
    format_ = FORMATS[suffix.lower()]
    try:
        read = partial(po.read, fuzzy=fuzzy) if format_ is _PO else format_.read
        document = read(content, languages)
        difference = format_.compare(content, content)
    except ImportError as error:
        raise missing_extra(f"A {suffix} file", error.name or "", "files") from None
    except (UserError, ValueError) as error:
        reason = " ".join(str(error).split()).rstrip(".")
        raise UserError(f"{name} cannot be translated: {reason}.") from None
    if difference:
        raise UserError(f"{name} is read in two ways: {difference}.")
    return document


# --- Texts -----------------------------------------------------------------------------------


def _has_words(text: Text) -> bool:
    return any(map(str.isalpha, without_codes(text.pieces)))


def _translated(
    document: Document,
    translate: Translate,
    numbers: bool,
    complete: Callable[..., dict[str, Found]],
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Found]:
    """Returns the translations of all texts that are sent, each once."""
    texts = [text for entry in document.entries for text in entry.texts if _has_words(text)]
    sent = list(dict.fromkeys(tagged(text.pieces).text for text in texts))
    found = complete(sent, False, translate, progress)
    wrong = [text for text in sent if _numbers(text) != _numbers(found[text].text)] * numbers
    again = complete(wrong, True, translate, progress)
    return found | again


def _numbers(text: str) -> Counter[str]:
    """Counts the numbers of a text by their digits, without those of codes."""
    rest = re.sub(f"{_TAG}|{_VALUE}", " ", text)
    return Counter(map(_value, re.findall(rf"(?<!\w)[-−](?=\d)|{ANY_NUMBER.pattern}", rest)))


def _value(number: str) -> str:
    """Returns a number without its thousands' separators; marks of decimals are alike."""
    number = re.sub(r"[.,' ’\u00a0\u202f](?=\d{3}(?:\D|$))", "", number)
    return re.sub("[,:]", ".", number).replace("−", "-")


def _pieces_of(
    entry: Entry, translations: dict[str, Found]
) -> tuple[list[Pieces | None], str, Sequence[str]]:
    """Returns the translations of an entry's texts, a reason to leave it, and warnings."""
    results: list[Pieces | None] = []
    warnings: list[str] = []
    for text in entry.texts:
        if not _has_words(text):
            results.append(text.pieces)
            continue
        sent = tagged(text.pieces)
        found = translations[sent.text]
        warnings += found.warnings
        pieces, reason = _pieces(text, sent, found.text.strip())
        if reason and not text.may_lack:
            return [], reason, ()
        if reason:
            warnings.append(f"a form is as another: {reason}")
        results.append(None if reason else pieces)
    if all(pieces is None for pieces in results):
        return [], warnings[-1], ()
    return results, "", [*dict.fromkeys(warnings)]


def _pieces(text: Text, sent: Tagged, translation: str) -> tuple[Pieces, str]:
    """Returns the translation of a text, and a reason why it cannot be used, "" if none."""
    if not translation:
        return [], "blank"
    if _numbers(sent.text) != _numbers(translation):
        return [], "numbers changed"
    for difference in differences(sent.text, translation):
        if difference.startswith(("tag new", "placeholder new")):
            return [], difference.partition(":")[0]
    pieces, reason = sent.pieces(_ended_alike(sent.text, translation))
    if not reason and text.stands_in:
        pieces, reason = _put_back(pieces, *text.stands_in)
    if not reason and text.accelerator:
        pieces = _with_accelerator(pieces, text.accelerator)
    return pieces, reason


def _ended_alike(source: str, translation: str) -> str:
    """Gives a translation the colon or ellipsis of its source, and no full stop of its own."""
    lines, others = source.split("\n"), translation.split("\n")
    if len(lines) == len(others) > 1:
        return "\n".join(map(_ended_alike, lines, others))
    wanted, has = _ENDS.search(source), _ENDS.search(translation)
    if wanted is None or has is None:
        return translation
    mark, own = (_ALIKE.get(match[0], match[0]) for match in (wanted, has))
    if mark == own or mark == "." or (not mark and _ANY_END.search(source)):
        return translation
    if not mark and own != ".":
        return translation
    end = translation[: has.start()]
    if mark and not own:
        end = end.rstrip("!?;,")
    return end + wanted[0] + translation[has.end() :]


def _put_back(pieces: Pieces, number: str, code: Code) -> tuple[Pieces, str]:
    """Puts a placeholder in place of the number that stands for it."""
    result: list[str | Code] = []
    for piece in pieces:
        parts = (
            [piece] if isinstance(piece, Code) else re.split(rf"(?<!\d){number}(?!\d)", piece)
        )
        for index, part in enumerate(parts):
            result += [code, part] if index else [part]
    if result.count(code) != 1:
        return [], f"the number {number}, for {code.written}, is not there once"
    return result, ""


def _with_accelerator(pieces: Pieces, accelerator: str) -> Pieces:
    """Puts the mark of a key before the first letter, or behind scripts without case: (&F)."""
    mark, letter = accelerator[0], accelerator[1:]
    first = next((char for char in without_codes(pieces) if char.isalpha()), "")
    if first.lower() == first.upper():
        last = pieces[-1] if isinstance(pieces[-1], str) else ""
        text = last.rstrip("….:： \n")
        others = pieces[:-1] if last else pieces
        return [*others, f"{text}({mark}{letter.upper()}){last.removeprefix(text)}"]
    result, is_put = list[str | Code](), False
    for piece in pieces:
        if isinstance(piece, str) and first in piece and not is_put:
            piece, is_put = piece.replace(first, mark + first, 1), True
        result.append(piece)
    return result


# --- What is done already --------------------------------------------------------------------


_HEAD = "tf-transformer: texts of a file, of "


class _Journal:
    """Translations in a file, one a line, from which the same command goes on."""

    def __init__(self, path: Path, origin: str) -> None:
        self.path, self._head = path, _HEAD + origin
        self._found: dict[tuple[str, bool], Found] = {}

    def __enter__(self) -> Self:
        begun = self.path.read_bytes().decode(errors="replace") if self.path.exists() else ""
        head, *lines = begun.split("\n")
        if begun and head != self._head:
            what = "work of other settings" if head.startswith(_HEAD) else "something else"
            raise UserError(f"{self.path} holds {what}. Remove it to begin again.")
        for line in lines:
            try:
                text, numbers, *found = json.loads(line)
            except ValueError:  # the last line, if the process was killed in it
                break
            self._found[text, numbers] = Found(*found)
        if begun:
            logger.info("going on with %s: %d texts", self.path, len(self._found))
        rows = [json.dumps([*key, *found]) for key, found in self._found.items()]
        self._write("w", [self._head, *rows])
        return self

    def __exit__(self, *error: object) -> None:
        if self.path.exists() and self._found:
            logger.warning("%s keeps what is done: the same command goes on", self.path)
        else:
            self.remove()

    def remove(self) -> None:
        """Removes the file, which is not needed any more."""
        self.path.unlink(missing_ok=True)

    def _write(self, mode: str, lines: list[str]) -> None:
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with self.path.open(mode, encoding="utf-8") as file:
                file.writelines(f"{line}\n" for line in lines)
        except OSError as error:
            raise UserError(f"Cannot write {self.path}: {error.strerror}.") from None

    def complete(
        self,
        texts: Sequence[str],
        numbers: bool,
        translate: Translate,
        progress: Callable[[int, int], None] | None,
    ) -> dict[str, Found]:
        """Returns the translations of all texts; writes down those that are new."""
        new = [text for text in texts if (text, numbers) not in self._found]
        for start in range(0, len(new), _CHUNK):
            chunk = new[start : start + _CHUNK]
            found = dict(zip(chunk, translate(chunk, numbers), strict=True))
            self._found |= {(text, numbers): each for text, each in found.items()}
            self._write("a", [json.dumps([text, numbers, *found[text]]) for text in chunk])
            if progress:
                progress(len(texts) - len(new) + start + len(chunk), len(texts))
        return {text: self._found[text, numbers] for text in texts}


# --- Afterwards ------------------------------------------------------------------------------


def _report(
    source: str,
    document: Document,
    outcomes: Iterable[tuple],
    kept: set[int],
    faults: dict[int, str],
) -> FileReport:
    counts = Counter(translated=len(kept), kept=document.kept)
    rows = [(each.start, each.name, each.reason, (), each.name, "") for each in document.left]
    for entry, pieces, reason, warnings in outcomes:
        if id(entry) not in kept:
            unread = "not read a second time, since too many others fail"
            failed = faults.get(id(entry), "")
            warnings = [failed] if failed else ()
            reason = reason or ("fails the second reading" if failed else unread)
        texts = "\n".join(plain(text.pieces) for text in entry.texts)
        found = "\n".join(plain(each or ()) for each in pieces)
        rows.append((entry.start, entry.name, reason, warnings, texts, found))
    counts.update(row[2] for row in rows if row[2])
    records = [
        {
            "file": source, "line": document.line(start), "name": name,
            "reasons": [f"left: {reason}", *warnings] if reason else warnings,
            "source": texts, "translation": found,
        }
        for start, name, reason, warnings, texts, found in sorted(rows, key=itemgetter(0))
        if reason or warnings
    ]  # fmt: skip
    return FileReport(counts, records)
