"""A second reading of translated files, by other libraries than those that read them first.

Each function returns the first difference of two files but for translations, "" if none.
"""

import re
import shutil
import subprocess
from collections import Counter, defaultdict
from collections.abc import Iterator
from contextlib import suppress
from itertools import zip_longest
from string import Formatter
from typing import Any

# --- HTML, by html5lib ------------------------------------------------------------------------

_INLINE = "br button embed iframe img input link meta noembed noframes noscript object script"
_INLINE += " select style template textarea wbr"
_KEPT = "script style pre code kbd samp var <!DOCTYPE>"  # their text stays
_WORDS = "alt title placeholder label aria-label aria-description aria-placeholder lang"
_WORDS += " xml:lang charset"


def compare_html(before: bytes, after: bytes) -> str:
    """Returns the first difference of two pages but for translations; "" if there is none.

    Tags and comments of a block may stand in another order; blocks may not.
    """
    olds = _blocks(before)
    if olds[0]["no encoding"]:  # then it may be said that it is UTF-8
        after = re.sub(rb'(?i)(<head\b[^<>]*>)<meta charset="utf-8">', rb"\1", after, count=1)
    for old, new in zip_longest(olds, _blocks(after), fillvalue=Counter[str]()):
        for what in (*(old - new), *(new - old)):
            return f"only one of both pages has here: {what[:200]!r}"
    return ""


def _blocks(content: bytes) -> list[Counter[str]]:
    """Returns what stands between each begin or end of a block and the next."""
    import html5lib
    from html5lib.constants import specialElements

    cut = {tag for _, tag in specialElements} - {*_INLINE.split()} | {"option", "summary"}
    guess = "utf-8" if content == content.decode(errors="ignore").encode() else "windows-1252"
    parser = html5lib.HTMLParser(html5lib.getTreeBuilder("etree", fullTree=True), False, False)
    blocks, marks = [Counter[str]()], {"no": True, "yes": False, "": False}
    todo: list[Any] = [(parser.parse(content, likely_encoding=guess, useChardet=False), False)]
    blocks[0]["no encoding"] = parser.tokenizer.stream.charEncoding[1] == "tentative"
    while todo:
        node, kept = todo.pop()
        if node is None:
            blocks.append(Counter({"a block": 1}))
        elif isinstance(node, str):
            if kept or any(map(str.isalpha, node)):
                blocks[-1][node if kept else "a text"] = 1
        elif not isinstance(node.tag, str):
            said = re.sub(r"(^\?xml [^>]{0,99}encoding=.)[\w.:-]+", r"\1", node.text or "")
            blocks[-1][f"comment {said}"] += 1
        else:
            stays = node.tag in _KEPT.split() or "notranslate" in node.get("class", "").split()
            kept, block = marks.get(node.get("translate"), stays or kept), [(None, False)]
            todo += block * (node.tag in cut)
            for child in reversed(node):
                todo += [(child.tail or "", kept), (child, kept)]
            todo += [(node.text or "", kept), (_tag(node), True), *block * (node.tag in cut)]
    return blocks


def _tag(node: Any) -> str:
    button = node.get("type", "").lower() in ("submit", "reset", "button")
    free = {"meta": " content", "input": " value" * button}.get(node.tag, "")
    names = {*(_WORDS + free).split()}
    given = (("", node.tag), *node.attrib.items())
    return " ".join(f"{k}={'' if k in names or k[-5:] == '}lang' else v}" for k, v in given)


# --- PO, by polib, and by `msgfmt -c` where it is installed -----------------------------------


_MAY_CHANGE = re.compile("msgstr|flags|linenum|previous")


def compare_po(before: bytes, after: bytes) -> str:
    """Returns the first difference of two catalogs but for translations, "" if none."""
    old, new = map(_catalog, (before, after))
    for name, value in old.metadata.items():
        if new.metadata.get(name) != value and not re.search("^$|charset|INTEGER|YEAR", value):
            return f"{name} of the header has changed"
    if len(old) != len(new):
        return f"{len(old)} entries became {len(new)}"
    for one, other in zip(old, new, strict=True):
        fixed = [
            {k: v for k, v in vars(x).items() if not _MAY_CHANGE.match(k)} for x in (one, other)
        ]
        if fixed[0] != fixed[1] or ({*one.flags} ^ {*other.flags}) - {"fuzzy"}:
            return f"{one.msgid!r} has changed"
        forms, found = ({0: each.msgstr} | each.msgstr_plural for each in (one, other))
        sources = [_asked(text, one.flags) for text in (one.msgid, one.msgid_plural) if text]
        for at, text in (dict.fromkeys(forms, "") | found).items():
            is_done = forms.get(at) and not one.fuzzy
            if text not in ("", forms.get(at)) and _asked(text, one.flags) not in sources:
                return f"{one.msgid!r} has other placeholders than its translation"
            if is_done and text != forms[at]:
                return f"{one.msgid!r} had another translation"
    return "" if _fault(before) else _fault(after)


def _catalog(content: bytes) -> Any:
    import polib

    text = content.decode(polib.detect_encoding(content), "surrogateescape")
    # These end lines for polib only, which also wants a space behind the mark of a comment.
    text = re.sub("[\v\f\x1c-\x1e\x85\u2028\u2029]", " ", text)
    with suppress(OSError):
        return polib.pofile(re.sub(r"(?m)^(#(?:~\||[,.:|~])?)(?=[^\s|,.:~])", r"\1 ", text))
    raise ValueError("polib cannot read it")


def _asked(text: str, flags: list[str]) -> list[str]:
    """Returns what a text asks for when Python formats it."""
    names: dict[str, float] = defaultdict(lambda: 77.5)
    with suppress(ValueError):
        if "python-brace-format" in flags:
            numbers, parsed = iter(range(99)), Formatter().parse(text)
            return sorted(
                name or str(next(numbers)) for _, name, *_ in parsed if name is not None
            )
        for number in range(20) if "python-format" in flags else ():
            with suppress(TypeError):  # too few, or too many
                result = text % (names if "%(" in text else (77.5,) * number)
                found = re.findall(r"77[.\d]*", result)
                return sorted([*names, *found]) if names else found
    return []


def _fault(content: bytes) -> str:
    if not shutil.which("msgfmt"):
        return ""
    command = ["msgfmt", "-c", "-o", "-", "-"]
    done = subprocess.run(command, input=content, capture_output=True, check=False)
    faults = re.findall("(?m)^(?!.*warning: ).+", done.stderr.decode(errors="replace"))
    return f"msgfmt: {faults[0]}" if done.returncode else ""


# --- XLIFF and TMX, by lxml -------------------------------------------------------------------

_MARKS = {"state", "state-qualifier", "subState", "target-language", "trgLang", "creationtool"}
_MARKS |= {"changedate", "changeid"}


def compare_xml(before: bytes, after: bytes) -> str:
    """Returns how a file differs from one before but for its translations, "" if in nothing."""
    from lxml import etree

    parser = etree.XMLParser(resolve_entities=False, no_network=True, huge_tree=True)
    try:
        roots = [etree.fromstring(content, parser) for content in (before, after)]
    except etree.XMLSyntaxError as error:
        return f"lxml cannot read it: {error}"
    units = [[*root.iter("{*}trans-unit", "{*}segment", "{*}tu")] for root in roots]
    for old, new in zip(*units, strict=False):
        if reason := _compare_unit(old, new):
            return f"line {new.sourceline}: {reason}"
    for old, new in zip_longest(*(map(_row, root.iter()) for root in roots)):
        if old != new:
            return f"{old} became {new}"
    return ""


def _row(node: Any) -> tuple:
    kept = {key: value for key, value in node.items() if key not in {*_MARKS, "approved"}}
    return node.tag, kept, node.text or "", node.tail or ""


def _compare_unit(old: Any, new: Any) -> str:
    """Returns what is wrong with the translations of a unit; takes out those that are right."""
    olds, texts = (u.findall("{*}target") + u.findall("{*}tuv/{*}seg") for u in (old, new))
    both = zip(olds, texts, strict=False)
    pairs = [(one, two) for one, two in both if _content(one) != _content(two)]
    added = texts[len(olds) :]
    sources = new.findall("{*}source") + new.findall("{*}seg-source") + texts
    for text in [text for _, text in pairs] + added:
        others = [each for each in sources if each is not text]
        if sorted(_codes(text)) not in [sorted(_codes(each)) for each in others]:
            return "codes are not those of the source"
    if new.get("approved") == "yes" and (pairs or added or old.get("approved") != "yes"):
        return "what a machine wrote is approved"
    for text in [text for pair in pairs for text in pair]:
        text[:], text.text = [], None
    for text in added:
        node = text if text.getparent() is new else text.getparent()
        before, after = node.getprevious(), node.xpath("local-name(following-sibling::*[1])")
        follows = before is not None and not (before.tail or "").strip()
        if not follows or after in ("source", "seg-source", "tuv"):
            return "a translation is not at its place"
        before.tail = node.tail
        new.remove(node)
    return ""


def _content(node: Any) -> tuple:
    return node.text or "", [*map(_row, node.iter())][1:]


def _codes(node: Any) -> Iterator[str]:
    """Iterates over the codes of a text, each with what is in it."""
    from lxml import etree

    for each in node.iterchildren("*", etree.PI):
        protected = each.get("mtype") == "protected" or each.get("translate") == "no"
        name = "" if each.tag is etree.PI else etree.QName(each).localname
        around = name in ("g", "hi", "mrk", "pc")
        if around and (len(each) or each.text) and not protected:
            yield f"{each.tag} {sorted(each.items())}"
            yield from _codes(each)
        else:
            yield etree.tostring(each, with_tail=False, encoding="unicode")


# --- Subtitles, by pysubs2 --------------------------------------------------------------------


def compare_subtitles(before: bytes, after: bytes) -> str:
    """Compares the cues of two files, as pysubs2 reads them."""
    pairs = zip_longest(_cues(before), _cues(after))
    for number, (old, new) in enumerate(pairs, 1):
        if old is None or new is None or old[1:] != new[1:] or old[0] < new[0]:
            return f"cue {number} has other times, tags or lines"
    return ""


def _cues(content: bytes) -> Iterator[tuple]:
    """Yields the number of line breaks of each cue, its times, tags and whether it has text."""
    import pysubs2

    is_wide = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    text = content.decode("utf-16" if is_wide else "utf-8-sig", "replace")
    text = re.sub(r"\r{0,9}\n|\r", "\n", text)
    name = "vtt" if text.startswith("WEBVTT") else "srt"
    keep = {"keep_html_tags": True, "keep_unknown_html_tags": True}
    for cue in pysubs2.SSAFile.from_string(text, name, **keep):
        parts = re.split(r"(<[^<>]*>|\{\\[^{}]*\})", cue.text)
        is_text = bool("".join(parts[::2]).strip())
        yield cue.text.count("\\N"), cue.start, cue.end, sorted(parts[1::2]), is_text
