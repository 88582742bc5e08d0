"""HTML pages: their texts, and the attributes that people read.

A text reaches from block to block. Inline tags are codes in it, and so are elements that stay,
such as `<code>`, those with texts of their own, such as `<button>`, and templates. Texts marked
as not to be translated count as `kept`. Entities such as `&nbsp;` are written as in the source.
"""

import bisect
import html
import re
from collections import Counter
from collections.abc import Container, Iterator, Sequence
from typing import Any, NamedTuple

from tf_transformer.translation.files import entries as ents


def _set(names: str) -> frozenset[str]:
    return frozenset(names.split())


_VOID = _set("area base br col embed frame hr img input link meta param source track wbr")
_BLOCKS = _set(
    "address article aside blockquote body caption center colgroup dd desc details dialog dir"
    " div dl dt fieldset figcaption figure footer foreignobject form frameset h1 h2 h3 h4 h5 h6"
    " head header hgroup hr html legend li main marquee menu nav ol optgroup option p pre table"
    " search section summary tbody td text tfoot th thead title tr ul"
)
_RAW = _set("iframe noembed noframes script style textarea title xmp")  # tags in them are text
_NO_TEXT = _set("iframe math metadata noembed noframes script style xmp")
_LITERAL = _NO_TEXT | _set("code kbd pre samp var")
_WITHIN = _NO_TEXT | _set(  # have texts of their own, and may stand in another text
    "audio button canvas datalist noscript object select svg template textarea video"
)
# A start tag ends an open element of its name, or else `p`, if in the same one of these.
_REPEATED = _set("li dt dd option tr td th")
_SCOPES = _WITHIN | _set("ul ol menu dir dl table")
_READ = re.compile(  # tag, attribute, and kind of those that people read
    r"(?i)(?!style |link )\S+ (?:alt|title|placeholder|aria-(?:label|description|placeholder)) "
    r"|(?:track|option|optgroup) label |input value (?:submit|reset|button)$"
    r"|meta content (?:(?:(?:og|twitter):)?(?:title|description|image:alt)|keywords)$"
)
_TOKEN = re.compile(  # a comment, the end of the page, or a tag: its slash, name and end
    r"<!--(?:-?>|[\s\S]*?(?:--!?>|\Z))|<(/?)([A-Za-z][^\s/>]*)"
    r"""(?:[^=/>]+|/(?!>)|=\s*(?:"[^"]*"?|'[^']*'?|[^\s>"']*))*+(/?>)?|<[!?/][^>]*>?|\Z"""
)
_VALUE = re.compile(
    r"""([^\s/>"'=][^\s/>=]*)(?:\s*=\s*(?:"([^"]*)"|'([^']*)'|([^\s>"'][^\s>]*))|())"""
)
_CHARSET = re.compile(r"""(?i)<meta\b[^>]{0,300}?charset\s*=\s*["']?\s*([\w.:-]+)""")
_XML = re.compile(r"""\s{0,99}<\?xml[^>]{1,300}?\sencoding\s*=\s*["']([\w.:-]+)""")
_HIDDEN = re.compile(  # where no tag is read
    r"(?i)<!--(?:-?>|[\s\S]*?(?:--!?>|\Z))|<(script|style|title|textarea)\b[\s\S]*?(?:</\1|\Z)"
)
_TEMPLATE = re.compile(
    r"<\?(?:php|=)[\s\S]*?(?:\?>|\Z)|<%(?:(?!<%|%>|</s)[\s\S]){0,999}%>|\{(?:"
    r"\{(?:(?!\{\{|\}\}|</s)[\s\S]){0,999}\}|([%#])(?:(?!\{\1|\1\}|</s)[\s\S]){0,999}\1)\}+"
)
_MASK = "\ufdd0"  # is no character: it stands for templates while tags are read
_PARTS = re.compile(f"{_MASK}+|[^{_MASK}]+")
_SPACES = re.compile(r"[ \t\r\n\f]+")


class _Item(NamedTuple):
    """A part of a text: a string or a tag, or an element that is one code."""

    start: int
    end: int
    kind: str  # "text", "open", "close" or "single"
    tag: str = ""
    words: int = 0  # whether people read something there, 1, and letters, 2
    pair: int = -1  # what an opening and its closing tag share


class _Element(NamedTuple):
    """An open element; `outer` is the text, as far as it is read, in which it is one code."""

    tag: str = ""
    start: int = 0
    state: str = ""  # "" if it is translated, "-" if not; its language if that is another
    outer: list[_Item] | None = None
    keep: bool = False  # whether white space in it stays


class _Page:
    """Reads a page: what it has of entries, and the open elements with the text read last."""

    def __init__(self, text: str, languages: ents.Languages) -> None:
        self.text, (self.source, self.target), self.kept = text, languages, 0
        self.masked = _TEMPLATE.sub(lambda match: _MASK * len(match[0]), text)
        self.entries, self.left = list[ents.Entry](), list[ents.Left]()
        self.edits, self.open, self.head = list[ents.Edit](), [_Element()], 0
        self.numbers = Counter[str]()  # of open elements, by their tags
        self.run, at, finder = list[_Item](), 0, _TOKEN  # the run is the text that is read
        while at < len(text) and (token := finder.search(self.masked, at)):
            if at < token.start():
                shown = html.unescape(text[at : token.start()])
                words = bool(shown.strip()) + any(map(str.isalpha, shown))
                self.run.append(_Item(at, token.start(), "text", "", words))
            at, finder, tag = token.end(), _TOKEN, (token[2] or "").lower()
            if not tag or not token[3]:
                self.run.append(_Item(*token.span(), "single"))
            elif token[1]:
                self._end(*token.span(), tag)
            else:
                empty = tag in _VOID or token[3] == "/>"
                self._start(*token.span(), tag, empty)
                if tag in _RAW and not empty:
                    finder = re.compile(rf"(?i)<(/)({tag})(?=[\s/>])[^>]*(>)?|\Z")
        self._close(1, len(text))
        self._flush()

    def _depth(self, tag: str, stops: Container[str]) -> int:
        """Returns the place of the innermost among the open elements, 0 if there is none."""
        last = len(self.open) - 1 if self.numbers[tag] else 0
        for at in range(last, max(0, last - 500), -1):  # as browsers do
            if self.open[at].tag == tag or self.open[at].tag in stops:
                return at if self.open[at].tag == tag else 0
        return 0

    def _start(self, start: int, end: int, tag: str, empty: bool) -> None:
        if tag in _BLOCKS:
            self._close(self._depth(tag if tag in _REPEATED else "p", _SCOPES), start)
            self._flush()
        spans: dict[str, ents.Range] = {}
        for match in _VALUE.finditer(self.masked, start + 1 + len(tag), end):
            spans.setdefault(match[1].lower(), match.span(match.lastindex or 0))
        values = {name: self.text[slice(*span)] for name, span in spans.items()}
        state, lang = self.open[-1].state, values.get("lang") or values.get("xml:lang") or ""
        lang = lang if re.match(r"[A-Za-z]{2,3}(?![A-Za-z])", lang) else ""
        if lang and tag == "html":
            ents.require_languages((lang, ""), (self.source, ""))
            self.source = self.source or lang
        if lang and state != "-":
            state = "" if ents.same_language(lang, self.source or lang) else lang
        if tag in _LITERAL or "notranslate" in values.get("class", "").split():
            state = "-"
        state = {"no": "-", "yes": "", "": ""}.get(values.get("translate", "?").lower(), state)
        if lang and self.target and not state:
            names = spans.keys() & {"lang", "xml:lang"}
            self.edits += [ents.Edit(*spans[name], (self.target,)) for name in names]
        kind = values.get("type") or values.get("name") or values.get("property") or ""
        for name in spans if state != "-" else ():
            if _READ.match(f"{tag} {name} {kind}"):
                self._add([_Item(*spans[name], "text")], state, f"{name}=")
        outer, inline = None, tag not in _BLOCKS
        if inline and not empty and (tag in _WITHIN or state != self.open[-1].state):
            outer, self.run = self.run, []
        elif inline:
            self.run.append(_Item(start, end, "single" if empty else "open", tag))
        if tag == "head" and self.text.find(">", start) == end - 1:
            self.head = self.head or end
        if not empty:
            keep = self.open[-1].keep or tag in ("pre", "textarea")
            self.open.append(_Element(tag, start, state, outer, keep))
            self.numbers[tag] += 1

    def _end(self, start: int, end: int, tag: str) -> None:
        at = self._depth(tag, () if tag in _BLOCKS else _BLOCKS)
        self._close(at and at + 1, start)
        if tag in _BLOCKS:
            self._flush()
        elif not at or self.open[at].outer is None:
            pair = self.open[at].start if at else end
            index = bisect.bisect_left(self.run, (pair,))
            if index == len(self.run) or self.run[index].start != pair:
                self.run.append(_Item(start, end, "single"))
            elif any(item.words for item in self.run[index:]):
                self.run[index] = self.run[index]._replace(pair=pair)
                self.run.append(_Item(start, end, "close", tag, 0, pair))
            else:  # with nothing between, both tags are one code
                self.run[index:] = [_Item(pair, end, "single")]
        self._close(at, end)

    def _close(self, at: int, end: int) -> None:
        """Closes the open elements from this one on; none if it is 0."""
        while 0 < at < len(self.open):
            tag, start, _, outer, _ = self.open[-1]
            if outer is not None or tag in _BLOCKS:
                self._flush()
            self.open.pop()
            self.numbers[tag] -= 1
            if outer is not None:
                words = 2 * (tag not in _WITHIN or tag == "button")
                self.run = outer
                self.run.append(_Item(start, end, "single", tag, words))

    def _flush(self) -> None:
        """Ends a text, and makes entries of it."""
        run, self.run = self.run, []
        state, outer = self.open[-1][2:4]
        letters = any(item.kind == "text" and item.words == 2 for item in run)
        self.kept += letters and state == "-" and outer is None
        for items in _texts(run) if letters and state != "-" else ():
            self._add(items, state)

    def _add(self, items: Sequence[_Item], state: str, attribute: str = "") -> None:
        """Makes an entry of a text, without white space around it."""
        begin, end = items[0].start, items[-1].end
        raw = self.text[begin:end]
        start, end = end - len(raw.lstrip()), begin + len(raw.rstrip())
        pieces, keep = list[str | ents.Code](), self.open[-1].keep
        for item in items:
            at, to = max(item.start, start), min(item.end, end)
            if item.kind != "text":
                role: Any = item.kind if item.pair >= 0 else "single"
                pieces.append(ents.Code(self.text[at:to], role, item.pair, (at, to)))
                continue
            for part in _PARTS.finditer(self.masked, at, to):
                raw = self.text[slice(*part.span())]
                if part[0][0] == _MASK:
                    command = not raw.startswith(("{{", "<?=", "<%="))
                    pieces.append(ents.Code(raw, copy=part.span(), in_order=command))
                else:
                    pieces.append(html.unescape(raw if keep else _SPACES.sub(" ", raw)))
        words = " ".join(ents.without_codes(pieces).split())
        name, has_letters = (attribute + words)[:60], any(map(str.isalpha, words))
        if state and has_letters:
            self.left.append(ents.Left(start, name, f"in another language, {state}"))
        if state or not has_letters:
            return
        quote = self.text[begin - 1] if attribute else ""
        added = '"' if quote not in ("", '"', "'") else ""
        escapes = {char: html.escape(char) for char in f"&<>{added or quote}"}
        for entity in re.findall(r"&(?:#\w{1,8}|[A-Za-z]\w{1,30});", self.text[start:end]):
            char = html.unescape(entity)
            if len(char) == 1 and (char in "&<>{}\"'" or not char.isascii()):
                escapes[char] = entity
        table = str.maketrans(escapes)

        def edits(translations: Sequence[ents.Pieces | None]) -> list[ents.Edit]:
            new = ents.filled(translations[0] or (), lambda text: text.translate(table))
            return [ents.Edit(start, end, (added, *new, added))]

        self.entries.append(ents.Entry(start, name, [ents.Text(pieces)], edits))


def _texts(items: Sequence[_Item]) -> Iterator[Sequence[_Item]]:
    """Yields the texts of a run without tags around them; of a row of links each is one."""
    todo = [items]
    while todo:
        items = todo.pop()
        low, high = 0, len(items)
        while low < high:
            first, last = items[low], items[high - 1]
            if first.pair == last.pair >= 0:
                low, high = low + 1, high - 1
            elif first.words == 0 and first.pair < 0:
                low += 1
            elif last.words == 0 and last.pair < 0:
                high -= 1
            else:
                break
        ends = {item.pair: at for at, item in enumerate(items)}
        rows, at = list[Sequence[_Item]](), low
        while at < high:
            tag, words, pair = items[at][3:]
            if pair < 0 and words < 2:
                at += 1
            elif pair >= 0 and (tag in ("a", "label", "span") or "-" in tag):
                rows.append(items[at : ends[pair] + 1])
                at = ends[pair] + 1
            else:
                rows, at = [], high
        if len(rows) < 2:
            yield items[low:high]
        else:
            todo += reversed(rows)


def read(content: bytes, languages: ents.Languages) -> ents.Document:
    """Reads a page; raises UserError if it is in another language or encoding than it says."""
    from webencodings import lookup

    named = _charset(content.decode("latin-1"))
    known = named and lookup(named[1])
    names = [known.codec_info.name if known else named[1]] if named else ["utf-8", "cp1252"]
    names += ["latin-1"] * (names[-1] == "cp1252")
    text, encoding, bom = ents.decoded(content, names)
    page = _Page(text, languages)
    entries = sorted(page.entries, key=lambda entry: entry.start)
    named = None if bom else _charset(text)
    if page.head and not named and not bom and encoding == "utf-8":
        page.edits.append(ents.Edit(page.head, page.head, ('<meta charset="utf-8">',)))
    found = entries, page.kept, page.left, page.edits, named and named.span(1)
    return ents.Document(text, encoding, *found, bom)


def _charset(text: str) -> re.Match[str] | None:
    """Finds the name of its encoding in a page, outside of comments and scripts."""
    shown = _HIDDEN.sub(lambda match: " " * len(match[0]), text)
    return _CHARSET.search(shown) or _XML.match(shown)
