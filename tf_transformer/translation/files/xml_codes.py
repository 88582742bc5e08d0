"""Elements of an XML file with their places in it, and their text as pieces: XLIFF, TMX."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any
from xml.parsers import expat
from xml.sax.saxutils import escape

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import entries as e
from tf_transformer.translation.files.placeholders import text_of

_DECLARED = re.compile(r"""<\?xml\s[^<>]*?\bencoding\s*=\s*["']([\w.:-]+)""", re.ASCII)
_TAG = re.compile(r"""<(?:[^>"']|"[^"]*"|'[^']*')*>""")
_ATTRIBUTE = re.compile(r"""\s([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")
_SPACES = re.compile("[ \t\r\n]+")
_AROUND = {"g", "hi", "mrk", "pc"}  # elements around text; any other is a code as a whole
_ROLES: dict[str, Any] = dict.fromkeys(("bpt", "bx", "sc", "sm"), "open")
_ROLES |= dict.fromkeys(("ept", "ex", "ec", "em"), "close")
_VALUE = re.compile(r"""(?:>|\s(?:equiv-text|disp)=["'])\s*[{$%]""")  # stands for a word

Part = str | e.Range
Outcome = e.Entry | e.Left | None  # of a unit; None if it is translated already
Changes = Iterable[e.Edit]
Edits = Callable[[Sequence[e.Pieces | None]], Changes]


@dataclass(eq=False, slots=True)
class Element:
    """An element: places of its first tag, content and last tag, and what is in it."""

    name: str
    attributes: dict[str, str]
    inherited: dict[str, str]  # its attributes, and those of the elements around it
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

    def is_blank(self) -> bool:
        """Tells whether it has neither text nor codes."""
        return all(
            not c.strip() if isinstance(c, str) else c.name in _AROUND and c.is_blank()
            for c in self.children
        )


class XmlFile:
    """An XML file whose first element has a name, as elements in their order."""

    def __init__(self, content: bytes, root: str) -> None:
        declared = _DECLARED.match(content[:1024].decode("latin-1"))
        encodings = [declared[1] if declared else "utf-8"]
        self.text, self._encoding, self._bom = e.decoded(content, encodings)
        self._signs = {"\r": "&#13;", "\n": "\r\n" if "\r\n" in self.text else "\n"}
        self.prefix = ""  # of names, with its colon
        self.elements = [*self._parsed(self.text.encode()).inside()]
        if (name := self.elements[0].name) != root:
            raise UserError(f"The first element must be {root}. Received: {name}.")

    def _parsed(self, data: bytes) -> Element:
        parser = expat.ParserCreate("utf-8")
        opened = [Element("", {}, {}, None, 0, 0)]
        last = [0, 0]  # the place reached, in bytes, which expat counts, and in characters

        def here() -> int:
            now = parser.CurrentByteIndex
            last[:] = now, last[1] + len(data[last[0] : now].decode())
            return last[1]

        def start(name: str, attributes: dict[str, str]) -> None:
            tag = _TAG.match(self.text, here())
            if tag is None or len(opened) > 100:
                raise UserError(f"Elements are too deep, in line {parser.CurrentLineNumber}.")
            parent = opened[-1]
            if len(opened) == 1:
                self.prefix = name[: name.find(":") + 1]
            inherited = parent.inherited | attributes
            name = name.removeprefix(self.prefix)
            element = Element(name, attributes, inherited, parent, *tag.span())
            parent.children.append(element)
            opened.append(element)

        def end(_: str) -> None:
            element = opened.pop()
            element.close = element.end = here()
            if self.text[element.inner - 2] != "/":
                element.end = self.text.index(">", element.close) + 1

        def instruction(*_: str) -> None:
            if len(opened) > 2:  # a code without a name
                end = self.text.index("?>", here()) + 2
                code = Element("", {}, {}, opened[-1], last[1], end, end, end)
                opened[-1].children.append(code)

        def entity(name: str, *_: object) -> None:
            raise UserError(f"The entity {name} is not read: write what it stands for.")

        parser.buffer_text = parser.specified_attributes = True
        parser.StartElementHandler, parser.EndElementHandler = start, end
        parser.ProcessingInstructionHandler = instruction
        parser.CharacterDataHandler = lambda text: opened[-1].children.append(text)
        parser.EntityDeclHandler = parser.SkippedEntityHandler = entity
        try:
            parser.Parse(data, True)
        except expat.ExpatError as error:
            raise UserError(f"The file is not XML: {error}.") from None
        return opened[0]

    def document(self, found: Sequence[Outcome], edits: Sequence[e.Edit] = ()) -> e.Document:
        """Returns the file with what its units are: None is one translated already."""
        entries = [each for each in found if isinstance(each, e.Entry)]
        left = [each for each in found if isinstance(each, e.Left)]
        name = _DECLARED.match(self.text)
        more = (found.count(None), left, edits, name.span(1) if name else None, self._bom)
        return e.Document(self.text, self._encoding, entries, *more)

    def entry(self, unit: Element, name: str, parts: list[Element], edits: Edits) -> Outcome:
        """Returns an entry whose texts are what some elements hold."""
        texts = [text_of(self._pieces(part), "any") for part in parts]
        for reason in texts:
            if isinstance(reason, str):
                return e.Left(unit.start, name, reason)
        return e.Entry(unit.start, name, [t for t in texts if isinstance(t, e.Text)], edits)

    def _pieces(self, element: Element) -> list[str | e.Code]:
        pieces: list[str | e.Code] = []
        is_tmx = self.elements[0].name == "tmx"  # where all spaces count
        preserve = is_tmx or element.inherited.get("xml:space") == "preserve"
        for each in element.children:
            if isinstance(each, str):
                pieces.append(each if preserve else _SPACES.sub(" ", each))
                continue
            start, inner, close, end = each.start, each.inner, each.close, each.end
            get, written = each.attributes.get, self.text[start:end]
            protected = get("mtype") == "protected" or get("translate") == "no"
            if each.name in _AROUND and inner < close and not protected:
                opening = e.Code(self.text[start:inner], "open", start, (start, inner))
                closing = e.Code(self.text[close:end], "close", start, (close, end))
                pieces += [opening, *self._pieces(each), closing]
            else:
                role = _ROLES.get(each.name, "value" if _VALUE.search(written) else "single")
                pair = each.name[1:], get("startRef") or get("rid") or get("id") or get("i")
                pieces.append(e.Code(written, role, pair, (start, end)))
        if element.name == "source" and not preserve and self.text[element.inner] in "\r\n":
            pieces[:1] = [p.lstrip() if isinstance(p, str) else p for p in pieces[:1]]
            pieces[-1:] = [p.rstrip() if isinstance(p, str) else p for p in pieces[-1:]]
        return pieces

    def indentation(self, element: Element) -> str:
        """Returns the line break and spaces before an element that begins a line, else ""."""
        before = self.text[max(0, element.start - 200) : element.start]
        _, line_break, indent = before.rpartition("\n")
        return self._signs["\n"] + indent if line_break and not indent.strip() else ""

    def content(self, pieces: e.Pieces) -> tuple[Part, ...]:
        """Returns what is written for a translation."""
        return e.filled(pieces, lambda text: escape(text, self._signs))

    def changes(self, element: Element, marks: dict[str, str], *content: Part) -> Changes:
        """Yields changes that give an element attributes (those with "" go) and any content."""
        tag = self.text[element.start : element.inner]
        last = element.start + len(tag.rstrip("/> \t\r\n"))
        found = _ATTRIBUTE.finditer(self.text, element.start, last)
        places = {match[1]: match.span() for match in found}
        for name, value in marks.items():
            new = f' {name}="{value}"' if value else ""
            yield e.Edit(*places.get(name, (last, last)), (new,))
        if content:
            yield e.Edit(last, element.end, (">", *content, f"</{self.prefix}{element.name}>"))


def written(name: str, attributes: dict[str, str], *content: Part) -> tuple[Part, ...]:
    """Returns an element as it is written."""
    marks = "".join(f' {key}="{value}"' for key, value in attributes.items())
    return (f"<{name}{marks}>", *content, f"</{name}>")
