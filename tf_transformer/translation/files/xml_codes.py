"""Elements of an XML file with their places in it, and their text as pieces: XLIFF, TMX."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import entries as e
from tf_transformer.translation.files.placeholders import text_of

_BOMS = {b"\xef\xbb\xbf": "utf-8", b"\xff\xfe": "utf-16-le", b"\xfe\xff": "utf-16-be"}
_STARTS = _BOMS | {b"<\0": "utf-16-le", b"\0<": "utf-16-be"}
_DECLARED = re.compile(r"""<\?xml\s[^<>]*?\bencoding\s*=\s*["']([\w.:-]+)""", re.ASCII)
_TAG = re.compile(r"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_ATTRIBUTE = re.compile(r"""\s([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")
_SPACES = re.compile("[ \t\r\n]+")
_AROUND = {"g", "hi", "mrk", "pc"}  # elements around text; any other is a code as a whole
_PAIRED = {"bpt", "bx", "sc", "sm", "ept", "ex", "ec", "em"}  # the last four close the others
_PAIRS = ("startRef", "rid", "id", "i")  # attributes that name what is opened and closed
_VALUE = re.compile(r"\s*[{$%]")  # begins what stands for a word, unlike a tag

Part = str | e.Range
Content = tuple[Part, ...]
Outcome = e.Entry | e.Left | None  # of a unit; None if it is translated already
Edits = Callable[[Sequence[e.Pieces | None]], Iterable[e.Edit]]


@dataclass(eq=False, slots=True)
class Element:
    """An element: places of its first tag, content and last tag, and what is in it."""

    name: str  # without the prefix of the first element
    attributes: dict[str, str]
    parent: "Element | None"
    start: int
    inner: int
    close: int = 0
    end: int = 0
    children: list["Element | str"] = field(default_factory=list)

    def all(self, name: str) -> list["Element"]:
        """Returns its children of a name."""
        return [c for c in self.children if isinstance(c, Element) and c.name == name]

    def inside(self) -> Iterator["Element"]:
        """Iterates over the elements in it, in their order."""
        for each in self.children:
            if isinstance(each, Element):
                yield each
                yield from each.inside()

    def inherited(self, attribute: str) -> str:
        """Returns an attribute, its own or that of the nearest element around; "" if none."""
        if self.parent is None or attribute in self.attributes:
            return self.attributes.get(attribute, "")
        return self.parent.inherited(attribute)

    def is_blank(self) -> bool:
        """Tells whether it has neither text nor codes."""
        return all(
            not c.strip() if isinstance(c, str) else c.name in _AROUND and c.is_blank()
            for c in self.children
        )


class XmlFile:
    """An XML file whose first element has a name, as elements in their order."""

    def __init__(self, content: bytes, root: str) -> None:
        self._bom = next((bom for bom in _BOMS if content.startswith(bom)), b"")
        declared = _DECLARED.match(content[:1024].decode("latin-1"))
        named = declared[1] if declared else "utf-8"
        self._encoding = next((_STARTS[b] for b in _STARTS if content.startswith(b)), named)
        try:
            self.text = content[len(self._bom) :].decode(self._encoding)
        except (LookupError, UnicodeDecodeError) as error:
            raise UserError(f"The file has another encoding than it names: {error}.") from None
        self._line_end = "\r\n" if "\r\n" in self.text else "\n"
        self.elements: list[Element] = []
        self._parse(self.text.encode())
        name = self.elements[0].name
        self.prefix = name[: name.find(":") + 1]
        for element in self.elements:
            element.name = element.name.removeprefix(self.prefix)
        if self.elements[0].name != root:
            raise UserError(f"The first element must be {root}. Received: {name}.")

    def _parse(self, data: bytes) -> None:
        parser = expat.ParserCreate("utf-8")
        opened: list[Element] = []
        last = [0, 0]  # the place reached, in bytes, which expat counts, and in characters

        def here() -> int:
            now = parser.CurrentByteIndex
            last[:] = now, last[1] + len(data[last[0] : now].decode())
            return last[1]

        def start(name: str, attributes: dict[str, str]) -> None:
            tag = _TAG.match(self.text, here())
            if tag is None or len(opened) > 100:
                raise UserError(f"Elements are too deep, in line {parser.CurrentLineNumber}.")
            element = Element(name, attributes, opened[-1] if opened else None, *tag.span())
            if opened:
                opened[-1].children.append(element)
            self.elements.append(element)
            opened.append(element)

        def end(_: str) -> None:
            element = opened.pop()
            element.close = element.end = here()
            if self.text[element.inner - 2] != "/":
                element.end = self.text.index(">", element.close) + 1

        def entity(name: str, *_: object) -> None:
            raise UserError(f"The entity {name} is not read: write what it stands for.")

        parser.buffer_text = True
        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.CharacterDataHandler = lambda text: opened[-1].children.append(text)
        parser.EntityDeclHandler = parser.SkippedEntityHandler = entity
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise UserError(f"The file is not XML: {error}.") from None

    def document(self, found: Sequence[Outcome], edits: Sequence[e.Edit] = ()) -> e.Document:
        """Returns the file with what its units are: None is one translated already."""
        entries = [each for each in found if isinstance(each, e.Entry)]
        left = [each for each in found if isinstance(each, e.Left)]
        name = _DECLARED.match(self.text)
        more = (found.count(None), left, edits, name.span(1) if name else None, self._bom)
        return e.Document(self.text, self._encoding, entries, *more)

    def entry(
        self, unit: Element, name: str, parts: Sequence[Element], preserve: bool, edits: Edits
    ) -> e.Entry | e.Left:
        """Returns an entry whose texts are what some elements hold; `preserve` their spaces."""
        texts: list[e.Text] = []
        for part in parts:
            marks = [(each.name, each.attributes.get("translate")) for each in part.inside()]
            pieces = self._pieces(part)
            if not preserve:
                pieces = [_SPACES.sub(" ", p) if isinstance(p, str) else p for p in pieces]
            text = text_of(pieces, "any")
            if isinstance(text, str) or ("sm", "no") in marks:
                reason = text if isinstance(text, str) else "a part is not to be translated"
                return e.Left(unit.start, name, reason)
            texts.append(text)
        return e.Entry(unit.start, name, texts, edits)

    def _pieces(self, element: Element) -> list[str | e.Code]:
        pieces: list[str | e.Code] = []
        for each in element.children:
            if isinstance(each, str):
                pieces.append(each)
                continue
            start, inner, close, end = each.start, each.inner, each.close, each.end
            get = each.attributes.get
            protected = get("mtype") == "protected" or get("translate") == "no"
            if each.name in _AROUND and inner < close and not protected:
                opening = e.Code(self.text[start:inner], "open", start, (start, inner))
                closing = e.Code(self.text[close:end], "close", start, (close, end))
                pieces += [opening, *self._pieces(each), closing]
                continue
            native = [*each.children, get("equiv-text"), get("disp")]
            is_value = any(isinstance(n, str) and _VALUE.match(n) for n in native)
            pair = (each.name[1:], *[get(key) for key in _PAIRS if get(key)][:1])
            role: Any = "value" if is_value else "single"
            if each.name in _PAIRED:
                role = "close" if each.name[0] == "e" else "open"
            pieces.append(e.Code(self.text[start:end], role, pair, (start, end)))
        return pieces

    def indentation(self, element: Element) -> str:
        """Returns the line break and spaces before an element that begins a line, else ""."""
        before = self.text[max(0, element.start - 200) : element.start]
        indent = before[len(before.rstrip(" \t")) :]
        return self._line_end + indent if before.endswith("\n" + indent) else ""

    def content(self, element: Element, pieces: e.Pieces) -> Content:
        """Returns what is written for a translation; CDATA if the element is such a section."""
        raw = self.text[element.inner : element.close]
        is_cdata = raw.startswith("<![CDATA[") and raw.find("]]>") == len(raw) - 3
        if is_cdata and not any(isinstance(piece, e.Code) and piece.copy for piece in pieces):
            text = e.plain(pieces).replace("]]>", "]]]]><![CDATA[>")
            return ("<![CDATA[", text.replace("\n", self._line_end), "]]>")
        signs = {"\r": "&#13;", "\n": self._line_end}
        return e.filled(pieces, lambda text: escape(text, signs))

    def element(self, name: str, attributes: Mapping[str, str], *content: Part) -> Content:
        """Returns an element as it is written."""
        written = "".join(f' {key}="{value}"' for key, value in attributes.items())
        return (f"<{self.prefix}{name}{written}>", *content, f"</{self.prefix}{name}>")

    def changes(
        self, element: Element, attributes: Mapping[str, str], *content: Part
    ) -> Iterator[e.Edit]:
        """Returns the changes that give an element attributes and, if there is any, content."""
        found = _ATTRIBUTE.finditer(self.text, element.start, element.inner)
        places = {match[1]: (match.start(2) + 1, match.end(2) - 1) for match in found}
        tag = self.text[element.start : element.inner]
        last = element.start + len(tag.rstrip("/> \t\r\n"))
        for name, value in attributes.items():
            new = value if name in places else f' {name}="{value}"'
            yield e.Edit(*places.get(name, (last, last)), (new,))
        if content and element.close < element.end:
            yield e.Edit(element.inner, element.close, content)
        elif content:
            content = (">", *content, f"</{self.prefix}{element.name}>")
            yield e.Edit(last, element.end, content)
