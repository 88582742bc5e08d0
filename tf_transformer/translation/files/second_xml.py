"""A second reading of XLIFF and TMX, by lxml: what has changed besides translations."""

from collections.abc import Iterator
from typing import Any

_MARKS = {"state", "state-qualifier", "subState", "target-language", "trgLang", "creationtool"}


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
        reason = _compare_unit(old, new)
        if reason:
            return f"line {new.sourceline}: {reason}"
    old_rows, new_rows = ([*map(_row, root.iter())] for root in roots)
    for old_row, new_row in zip(old_rows, new_rows, strict=False):
        if old_row != new_row:
            return f"{old_row} became {new_row}"
    return "" if len(old_rows) == len(new_rows) else "elements are missing or new"


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
        if (
            before is None
            or (before.tail or "").strip()
            or after in ("source", "seg-source", "tuv")
        ):
            return "a translation is not at its place"
        before.tail = node.tail
        new.remove(node)
    return ""


def _content(node: Any) -> tuple:
    return node.text or "", [*map(_row, node.iter())][1:]


def _codes(node: Any) -> Iterator[str]:
    """Iterates over the codes of a text, each with what is in it."""
    from lxml import etree

    for each in node.iterchildren("*"):
        protected = each.get("mtype") == "protected" or each.get("translate") == "no"
        around = etree.QName(each).localname in ("g", "hi", "mrk", "pc")
        if around and (len(each) or each.text) and not protected:
            yield f"{each.tag} {sorted(each.items())}"
            yield from _codes(each)
        else:
            yield etree.tostring(each, with_tail=False, encoding="unicode")
