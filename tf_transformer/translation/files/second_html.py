"""A second reading of translated HTML pages, by html5lib."""

from collections import Counter
from itertools import zip_longest
from typing import Any

_INLINE = "br button embed iframe img input link meta noembed noframes noscript object script"
_INLINE += " select style template textarea wbr"
_KEPT = "script style pre code kbd samp var <!DOCTYPE>"  # their text stays
_WORDS = "alt title placeholder abbr summary label aria-label aria-description aria-placeholder"
_WORDS += " aria-roledescription aria-valuetext lang xml:lang charset"


def compare(before: bytes, after: bytes) -> str:
    """Returns the first difference of two pages but for translations; "" if there is none.

    Tags and comments of a block may stand in another order; blocks may not.
    """
    for old, new in zip_longest(_blocks(before), _blocks(after), fillvalue=Counter[str]()):
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
    while todo:
        node, kept = todo.pop()
        if node is None:
            blocks.append(Counter({"a block": 1}))
        elif isinstance(node, str):
            if kept or any(map(str.isalpha, node)):
                blocks[-1][node if kept else "a text"] = 1
        elif not isinstance(node.tag, str):
            blocks[-1][f"comment {node.text}"] += 1
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
