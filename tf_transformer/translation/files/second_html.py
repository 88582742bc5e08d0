"""A second reading of translated HTML pages, by html5lib."""

from collections import Counter
from itertools import zip_longest
from typing import Any

_INLINE = "br button embed iframe img input link meta noembed noframes noscript object script"
_INLINE += " select style template textarea wbr"
_KEPT = "script style pre code kbd samp var <!DOCTYPE>"  # whose text stays
_WORDS = "alt title placeholder abbr summary label lang xml:lang charset"


def compare(before: bytes, after: bytes) -> str:
    """Returns the first difference of two pages but for translations; "" if there is none.

    Tags and comments of a block may stand in another order; blocks may not.
    """
    for old, new in zip_longest(_blocks(before), _blocks(after), fillvalue=Counter()):
        if old != new:
            lost, found = ([*(one - other)][:1] for one, other in ((old, new), (new, old)))
            return f"{lost or 'nothing'} has become {found or 'nothing'}"
    return ""


def _blocks(content: bytes) -> list[Counter[str]]:
    """Returns what stands between each begin or end of a block and the next."""
    import html5lib
    from html5lib.constants import specialElements

    cut = {tag for _, tag in specialElements} - {*_INLINE.split()} | {"option", "summary"}
    guess = "utf-8" if content == content.decode(errors="ignore").encode() else "windows-1252"
    builder = html5lib.getTreeBuilder("etree", fullTree=True)
    parser = html5lib.HTMLParser(tree=builder, namespaceHTMLElements=False)
    blocks = [Counter[str]()]
    todo: list[Any] = [(parser.parse(content, likely_encoding=guess, useChardet=False), False)]
    while todo:
        node, kept = todo.pop()
        if node is None:
            blocks.append(Counter())
        elif isinstance(node, str):
            if kept or any(map(str.isalpha, node)):
                blocks[-1][f"text {node}" if kept else "a text"] = 1
        elif not isinstance(node.tag, str):
            blocks[-1][f"comment {node.text}"] += 1
        else:
            stays = node.tag in _KEPT.split() or "notranslate" in node.get("class", "").split()
            mark = {"no": True, "yes": False, "": False}.get(
                node.get("translate"), stays or kept
            )
            block = [(None, False)] * (node.tag in cut)
            todo += block
            for child in reversed(node):
                todo += [(child.tail or "", mark), (child, mark)]
            todo += [(node.text or "", mark), (_shown(node), True), *block]
    return blocks


def _shown(node: Any) -> str:
    """Returns a tag without the attributes that are translated."""
    free = {*_WORDS.split(), "content" if node.tag == "meta" else ""}
    if node.tag == "input" and node.get("type", "").lower() in ("submit", "reset", "button"):
        free.add("value")
    values = (
        key if key.rpartition("}")[2] in free or key.startswith("aria-") else f"{key}={value}"
        for key, value in node.attrib.items()
    )
    return f"{node.tag} {' '.join(values)}"
