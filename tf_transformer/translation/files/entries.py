"""Entries of a file, with their places in it: what all formats have in common.

A file is never written anew. Each translation replaces a range of it, and its codes (tags,
placeholders) are copied from there:

    <source>A <g id="1">dog</g>.</source>      "A ", Code(open), "dog", Code(close), "."
    A <x0>dog</x0>.  ->  Ein <x0>Hund</x0>.    what is translated: tags that stand for the codes

A reader of a format returns a `Document`. No TensorFlow.
"""

import bisect
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from tf_transformer.base.errors import UserError

Languages = tuple[str, str]  # codes of source and target; "" if the model has no names
Range = tuple[int, int]  # of characters of a file
_BOMS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}


@dataclass(frozen=True)
class Code:
    """A part of a text that is not translated: a tag, or a placeholder.

    Attributes:
        written: what it is, for people and for checks, without escapes.
        role: "open" and "close" enclose text, "single" is any other tag, "value" a placeholder,
            which stands for a word or a number.
        pair: what an opening and its closing code share, for those two roles.
        copy: the range of the file that is copied for it; None if `written` is escaped as text.
        numbered: how it is written with its place among the arguments, such as "%2$s" for the
            second "%s"; "" if this is not possible.
        in_order: whether its order among others of the kind says which argument it is.
    """

    written: str
    role: Literal["open", "close", "single", "value"] = "value"
    pair: object = None
    copy: Range | None = None
    numbered: str = ""
    in_order: bool = False


Pieces = Sequence[str | Code]  # a text: unescaped strings and codes


@dataclass(frozen=True)
class Text:
    """One text of an entry.

    Attributes:
        pieces: the text; its lines are translated one by one.
        accelerator: the mark of a key and its letter, "&F" or "_S", taken off the text and put
            back before the first letter of the translation; "" if there is none.
        stands_in: a number that stands for a placeholder in the text, as ("3", Code("%d")),
            which must be once in the translation and is put back.
        may_lack: whether the entry is written without it if its translation has a fault.
    """

    pieces: Pieces
    accelerator: str = ""
    stands_in: tuple[str, Code] | None = None
    may_lack: bool = False


class Edit(NamedTuple):
    """A change of a range of a file: strings as they are, and ranges to copy from it."""

    start: int
    end: int
    pieces: tuple[str | Range, ...]


@dataclass(frozen=True)
class Entry:
    """A part of a file that is translated as a whole, or left as it is.

    Attributes:
        start: where it begins, for the line in reports.
        name: its identity in the file: msgid, unit, the text itself.
        texts: its texts, such as the forms of a plural.
        edits: returns the changes of the file for translations of the texts, None for one that
            has a fault and `may_lack`.
    """

    start: int
    name: str
    texts: Sequence[Text]
    edits: Callable[[Sequence[Pieces | None]], Iterable[Edit]]


class Left(NamedTuple):
    """An entry that is left as it is, and why."""

    start: int
    name: str
    reason: str


@dataclass(frozen=True)
class Document:
    """A file that has been read.

    Attributes:
        text: the whole file, decoded; its line ends as they are.
        encoding: the name of its encoding, for Python.
        entries: what is to be translated.
        kept: number of entries that have a translation already.
        left: entries that the reader leaves.
        edits: further changes, made if any entry is translated, such as the language's name.
        declaration: where the file names its encoding, if it does.
        bom: the bytes before the text.
    """

    text: str
    encoding: str
    entries: Sequence[Entry]
    kept: int = 0
    left: Sequence[Left] = ()
    edits: Sequence[Edit] = ()
    declaration: Range | None = None
    bom: bytes = b""
    _lines: list[int] = field(default_factory=list)

    def line(self, start: int) -> int:
        """Returns the number of the line, from 1, of a place in the text."""
        if not self._lines:
            self._lines.extend(m.start() for m in re.finditer("\n", self.text))
        return bisect.bisect_left(self._lines, start) + 1

    def with_edits(self, edits: Iterable[Edit]) -> tuple[bytes, str]:
        """Returns the file after these changes, and the name of its encoding.

        That is UTF-8, and declared so, if the file's own cannot write a translation.
        """
        edits = [*edits]
        try:
            return self.bom + spliced(self.text, edits).encode(self.encoding), self.encoding
        except UnicodeEncodeError:
            if self.declaration:
                edits.append(Edit(*self.declaration, ("UTF-8",)))
            return spliced(self.text, edits).encode(), "UTF-8"


def decoded(content: bytes, encodings: Sequence[str]) -> tuple[str, str, bytes]:
    """Returns a file as text, its encoding, the first that is right, and its byte order mark.

    Raises UserError, which names the line, if none is right.
    """
    bom = next((bom for bom in _BOMS if content.startswith(bom)), b"")
    content, line = content.removeprefix(bom), 1
    for encoding in [_BOMS[bom]] if bom else encodings:
        try:
            text = content.decode(encoding)
            if text.encode(encoding) == content:
                return text, encoding, bom
        except (LookupError, ValueError) as error:
            line = content.count(b"\n", 0, getattr(error, "start", 0)) + 1
    raise UserError(f"Line {line} is not in {encoding}, as the file says: correct either.")


def spliced(text: str, edits: Iterable[Edit]) -> str:
    """Returns a text after edits; those within a range that another copies are made there.

    Edits neither overlap nor repeat, but one may lie in a range copied by another.
    """
    # What is put in at a place comes before what replaces a range from there.
    ordered = sorted(edits, key=lambda edit: (edit.start, edit.start < edit.end, -edit.end))
    starts = [edit.start for edit in ordered]

    def copied(start: int, end: int, index: int) -> Iterator[str]:
        while index < len(ordered) and ordered[index].start < end:
            edit = ordered[index]
            yield text[start : edit.start]
            for piece in edit.pieces:
                if isinstance(piece, str):
                    yield piece
                else:
                    yield from copied(*piece, bisect.bisect_left(starts, piece[0], index + 1))
            start = edit.end
            index = bisect.bisect_left(starts, edit.end, index + 1)
        yield text[start:end]

    return "".join(copied(0, len(text) + 1, 0))


def filled(pieces: Pieces, escape: Callable[[str], str]) -> tuple[str | Range, ...]:
    """Returns a text as the pieces of an `Edit`."""
    return tuple(
        escape(piece) if isinstance(piece, str) else piece.copy or escape(piece.written)
        for piece in pieces
    )


def plain(pieces: Pieces) -> str:
    """Returns a text as people read it, with its codes."""
    return "".join(piece if isinstance(piece, str) else piece.written for piece in pieces)


def without_codes(pieces: Pieces) -> str:
    """Returns a text with a space for each of its codes."""
    return "".join(piece if isinstance(piece, str) else " " for piece in pieces)


# --- Codes as tags that a translator keeps ---------------------------------------------------


class Tagged(NamedTuple):
    """A text with tags for its codes: `<x0>`, `</x0>`, `<x1/>`, `{x2}` for a placeholder."""

    text: str  # without white space around it
    codes: dict[str, Code]  # by their tags, in the order of the text
    name: str  # of the tags, "x" in these
    before: str  # white space
    after: str

    def pieces(self, translation: str) -> tuple[Pieces, str]:
        """Returns a translation as pieces, and a reason why it cannot be used, "" if none."""
        tag = rf"([<{{]/?{self.name}\d+/?[>}}])"
        found: list[Any] = re.split(tag, self.before + translation + self.after)
        counts = Counter(found[1::2])
        if new := counts.keys() - self.codes.keys():
            return [], f"{'placeholder' if '{' in min(new) else 'tag'} new"
        order = [self.codes[tag] for tag in found[1::2]]
        wrong = [code for tag, code in self.codes.items() if counts[tag] != 1]
        if wrong:
            kind = "placeholder" if wrong[0].role == "value" else "tag"
            return [], f"{kind} {'doubled' if len(order) > len(self.codes) else 'missing'}"
        if not _closed(order) or (_nested(self.codes.values()) and not _nested(order)):
            return [], "tags in another order"
        found[1::2] = order
        return _in_order([piece for piece in found if piece], [*self.codes.values()])


def tagged(pieces: Pieces) -> Tagged:
    """Returns a text with tags for its codes, of a name that the text does not have."""
    whole = plain(pieces)
    names = ("x" * size for size in itertools.count(1))
    name = next(n for n in names if not re.search(rf"(?i)[<{{]/?{n}\d", whole))
    pairs = Counter(_pair(code) for code in pieces if isinstance(code, Code))
    first: dict[object, int] = {}
    texts: list[str] = []
    codes: dict[str, Code] = {}
    for piece in pieces:
        if isinstance(piece, str):
            texts.append(piece)
            continue
        number = len(codes)
        tag = f"{{{name}{number}}}" if piece.role == "value" else f"<{name}{number}/>"
        if piece.role in ("open", "close") and pairs[_pair(piece)] == 2:
            number = first.setdefault(_pair(piece), number)
            tag = f"<{'/' * (piece.role == 'close')}{name}{number}>"
        codes[tag] = piece
        texts.append(tag)
    text = "".join(texts)
    stripped = text.strip()
    before, after = text.split(stripped) if stripped and text.count(stripped) == 1 else ("", "")
    return Tagged(stripped, codes, name, before, after)


def _pair(code: Code) -> object:
    return code.pair if code.role in ("open", "close") else None


def _closed(codes: Iterable[Code]) -> bool:
    """Tells whether no code closes a pair before it is opened."""
    last: dict[object, str] = {}
    for code in codes:
        if code.role == "open" and last.get(code.pair) == "close":
            return False
        if code.role in ("open", "close"):
            last[code.pair] = code.role
    return True


def _nested(codes: Iterable[Code]) -> bool:
    """Tells whether each closing code closes the last one that is open."""
    opened: list[object] = []
    for code in codes:
        if code.role == "open":
            opened.append(code.pair)
        elif code.role == "close" and code.pair in opened and opened.pop() != code.pair:
            return False
    return True


def _in_order(pieces: Pieces, source: Sequence[Code]) -> tuple[Pieces, str]:
    """Numbers placeholders that have changed places; or returns the reason why this fails."""
    before = [code for code in source if code.in_order]
    after = [piece for piece in pieces if isinstance(piece, Code) and piece.in_order]
    if all(old is new for old, new in zip(before, after, strict=True)):
        return pieces, ""
    if not all(code.numbered for code in before):
        return [], "placeholders in another order"
    return [
        Code(piece.numbered) if isinstance(piece, Code) and piece.in_order else piece
        for piece in pieces
    ], ""


# --- Languages -------------------------------------------------------------------------------


def same_language(one: str, other: str) -> bool:
    """Tells whether codes such as en-GB and en_US name the same language, in any region."""
    first, second = (re.split("[-_.@]", code.lower())[0] for code in (one, other))
    return first == second


def require_languages(found: Languages, languages: Languages) -> None:
    """Raises UserError if a file names other languages than the model's; "" names none."""
    for side, file, model in zip(("from", "to"), found, languages, strict=True):
        if file and model and not same_language(file, model):
            raise UserError(
                f"The file is {side} {file}, the model {side} {model}: give a model that "
                f"translates {side} {file}, or change the language that the file names."
            )
