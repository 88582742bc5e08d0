r"""Placeholders, tags and accelerators that are written in a text: `%s`, `{name}`, `<b>`, `&File`.

Each kind of format string has its table, by the names of gettext's flags. A text of an unknown
kind has the union "any", which is careful with prose: "50 % of", "at 12:30", "$5".

No expression goes on behind the next character that it begins with: so the time is linear.
"""

import itertools
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from tf_transformer.translation.files.entries import Code, Pieces, Text, plain, without_codes

Role = Literal["open", "close", "single", "value"]


class _Style(NamedTuple):
    """A kind of format string.

    Attributes:
        values: an expression for its placeholders; its group `next` takes the next argument.
        place: what numbers such a placeholder, behind its first character; "" if nothing can.
        first: the number of the first argument.
        markup: an expression for tags and entities.
    """

    values: str
    place: str = ""
    first: int = 1
    markup: str = (
        r"<!--(?:(?!-->|<!--)[\s\S])*-->"
        r"""|<(?P<close>/?)(?P<name>[A-Za-z][\w:-]*)(?:"[^"<]*"|'[^'<]*'|[^<>"'])*>"""
        r"|&(?:[A-Za-z]\w{1,30}|\#\w{1,8});"
    )


def _printf(kinds: str, flags: str = "[-+ #0']", sizes: str = "hh?|ll?|[jztLq]") -> str:
    number = r"(?:\d+|\*(?:\d+\$)?)?"
    spec = rf"{flags}*{number}(?:\.{number})?(?:{sizes})?(?:{kinds})"
    return rf"%%|%\d+\${spec}|(?P<next>%{spec})"


_TEMPLATES = (
    r"\{\{(?:(?!\{\{|\}\})[\s\S])*\}\}+|\{%(?:(?!\{%|%\})[\s\S])*%\}"
    r"|<%(?:(?!<%|%>)[\s\S])*%>|<\?(?:(?!<\?|\?>)[\s\S])*\?>"
)
_C = _printf("[diouxXeEfFgGaAcspnCS]|<PRI\\w+>", "[-+ #0'I]", "hh?|ll?|[jztLq]|I64|I32")
_BRACED = r"\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}"
_BRACES = _Style(r"\{\{|\}\}|(?P<next>(?=\{[}!:.\[])" + _BRACED + r")|" + _BRACED, "{}", 0)
_NUMBERED = _Style(r"\{\{|\}\}|\{\d[^{}]*\}")
_DOLLAR = r"\$[A-Za-z_]\w*"
_ANY = _Style(
    rf"{_TEMPLATES}|[$#%]?\{{[^{{}}\n]{{0,80}}(?:\{{[^{{}}\n]*\}}[^{{}}\n]*)*\}}"
    r"|%\([^()\s]{1,80}\)[-+#0 ]*\d*(?:\.\d+)?[a-zA-Z]|%%|%\d%|%\|[^|\s]*\||%\d+\$[-+#0-9.]*l*[a-zA-Z]"
    # After a digit a percent sign is prose: "a 50%ige chance"; before two digits an address.
    r"|(?<!\d)%(?!d(?:min|sec))[a-z_]{4,}"  # Drupal
    r"|(?P<next>(?<!\d)%[-+#0]*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:hh?|ll?|[jzt])?[disuxXfFgGeEcp@])"
    r"|%L?[1-9]\d?(?![\dA-F])|%L?n(?![a-z])|(?<!\d)%[-_0^#]?[A-Za-z](?![A-Za-z])"
    rf"|(?<![\w$]){_DOLLAR}|(?<![\w@.])@[A-Za-z_]\w*|(?<![^\s(\[\"'>]):[A-Za-z_]\w+:?"
)
_STYLES = {
    "any": _ANY,
    "html": _Style(_TEMPLATES, markup="(?!)"),
    "subtitle": _Style(r"\{\\[^{}]*\}|\{[A-Za-z]:[^{}]*\}|<\d[\d:.]*>"),
    "c": _Style("%m|" + _C, "{}$"),
    "objc": _Style("%m|" + _C.replace("[dio", "[@dio"), "{}$"),
    "gcc-internal": _Style("%[<>'m]|" + _printf("[A-Za-z]", "[-+ #0q]", "hh?|ll?|w"), "{}$"),
    "python": _Style(
        r"%\([^()]*\)[-+ #0]*(?:\d+|\*)?(?:\.(?:\d+|\*))?[hlL]?[a-zA-Z]|" + _printf("[a-zA-Z]")
    ),
    "perl": _Style(_printf("v?[a-zA-Z]", sizes="hh?|ll?|[qLVzt]"), "{}$"),
    "php": _Style(_printf("[bcdeEfFgGosuxX]", "(?:'.|[-+ 0])", "l"), "{}$"),
    "ruby": _Style(
        r"%[-+ #0]*\d*(?:\.\d+)?(?:<\w+>[-+ #0]*\d*(?:\.\d+)?[a-zA-Z]|\{\w+\})|"
        + _printf("[a-zA-Z]", sizes=""),
        "{}$",
    ),
    "java-printf": _Style("%n|%<[a-zA-Z]+|" + _printf("[tT]?[a-zA-Z]", "[-+ #0,(]", ""), "{}$"),
    "go": _Style(r"%%|%[-+ #0]*\[\d+\][\d.]*\w|(?P<next>%[-+ #0]*[\d.*]*[a-zA-Z])", "[{}]"),
    "lua": _Style(_printf("[a-zA-Z]", sizes="")),
    "object-pascal": _Style(
        r"%%|%\d+:[-\d.]*[a-zA-Z]|(?P<next>%-?[\d*]*(?:\.[\d*]+)?[a-zA-Z])", "{}:", 0
    ),
    "boost": _Style(r"%\d+%|%\|[^|\s]*\||" + _C, "{}$"),
    "qt": _Style(r"%L?\d{1,2}|%L?n"),
    "sh": _Style(rf"{_DOLLAR}|\$\{{\w+\}}"),
    "perl-brace": _Style(r"\{[A-Za-z_]\w*\}"),
    "python-brace": _BRACES,
    "java": _NUMBERED,
    "lisp": _Style(r"~[~%&]|(?P<next>~[\d,:@'#]*[A-Za-z])"),
}
_SAME = {
    "c": "awk tcl javascript elisp librep sh-printf d", "qt": "qt-plural kde kde-kuit ycp",
    "java": "csharp", "python-brace": "c++ rust", "lisp": "scheme",
}  # fmt: skip
for _style, _names in _SAME.items():
    _STYLES |= dict.fromkeys(_names.split(), _STYLES[_style])
_ICU = re.compile(
    r"(?i)\{\s{0,9}[\w.-]{0,60}\s{0,9},\s{0,9}(?:plural|select(?:ordinal)?|choice)\s{0,9},"
)


def text_of(pieces: str | Pieces, style: str) -> Text | str:
    """Returns a text with the codes that are written in its strings, or why it must be left.

    Args:
        pieces: the text; it may have codes already.
        style: a flag such as "c-format", "any" if none is known, "html" or "subtitle".
    """
    given = [pieces] if isinstance(pieces, str) else pieces
    table = _STYLES.get(style.removesuffix("-format"), _ANY)
    finder = re.compile(f"{table.values}|{table.markup}")  # `re` remembers it
    parts: list[str | Code | re.Match] = []
    for piece in given:
        end = 0
        for match in finder.finditer(piece) if isinstance(piece, str) else ():
            parts += [piece[end : match.start()], match]
            end = match.end()
        parts.append(piece[end:] if isinstance(piece, str) else piece)
    found = [piece for piece in _with_codes(parts, table) if piece]
    if style in ("html", "subtitle"):
        return Text(found)
    if _ICU.search(plain(given)):
        return "ICU message"
    messages = re.sub(r"\[[^\[\]]*\]|\([^()]*\)", "", without_codes(found)).split("|")
    # In other styles `|` is an "or", as in "-a|-b", or stands in a title.
    if table is _ANY and len(messages) > 1 and all(re.search(r"[^\W\d_]", m) for m in messages):
        return "several messages in one, separated by |"
    return _without_accelerator(found)


def _with_codes(parts: Sequence[str | Code | re.Match], table: _Style) -> list[str | Code]:
    matches = {at: part for at, part in enumerate(parts) if isinstance(part, re.Match)}
    numbers = itertools.count(table.first)

    def number(match: re.Match) -> str:
        if not match.groupdict().get("next"):
            return match[0]
        return match[0][0] + (table.place or "{}").format(next(numbers)) + match[0][1:]

    # A tag may have placeholders too: <a href="%s">.
    numbered = {at: re.sub(table.values, number, match[0]) for at, match in matches.items()}
    several = next(numbers) - table.first > 1
    # A width of `*` or `{}` takes an argument of its own.
    wide = any(re.search(r"^[^<].*(?:\*|\{)", match[0]) for match in matches.values())
    roles = _roles(matches)
    pieces: list[str | Code] = [part for part in parts if not isinstance(part, re.Match)]
    for at, match in matches.items():
        takes = numbered[at] != match[0]
        shown = numbered[at] if takes and table.place and several and not wide else ""
        pieces.insert(at, Code(match[0], *roles.get(at, ("value", None)), None, shown, takes))
    return pieces


def _roles(matches: Mapping[int, re.Match]) -> dict[int, tuple[Role, object]]:
    """Returns roles and pairs of tags: one closes the last of its name that is open."""
    roles: dict[int, tuple[Role, object]] = {}
    opened: list[tuple[str, int]] = []
    counts: Counter[str] = Counter()
    for at, match in matches.items():
        name = (match.groupdict().get("name") or "").lower()
        if name or re.match("<[!\\d]", match[0]):
            roles[at] = "single", None
        if not name or match[0].endswith("/>"):
            continue
        if not match["close"]:
            opened.append((name, at))
            counts[name] += 1
        elif counts[name]:
            last = ""
            while last != name:  # others in between have no end
                last, first = opened.pop()
                counts[last] -= 1
            roles[first], roles[at] = (
                ("open", ("written", first)),
                ("close", ("written", first)),
            )
    return roles


def _without_accelerator(pieces: Pieces) -> Text:
    """Takes the mark of a key off a short text: one `&` or `_` before a letter."""
    text = without_codes(pieces)
    places = [
        at for mark in "&_" if text.count(mark) == 1 and _is_mark(text, at := text.find(mark))
    ]
    if len(places) != 1 or len(text) > 60:
        return Text(pieces)
    mark, letter = text[places[0] : places[0] + 2]
    # Languages without letters on keys: "(&F)" at the end.
    off = rf"\s?\({mark}{letter}\)|{mark}"
    return Text(
        [re.sub(off, "", p) if isinstance(p, str) else p for p in pieces], mark + letter
    )


def _is_mark(text: str, place: int) -> bool:
    """Tells `&File`, `E&xit`, `Save _As` from R&D, file_name, ?a=1&b=2 and the `_id` field."""
    letter = text[place + 1 : place + 2]
    before = re.search(r"[^\W\d_]*$", text[:place])[0]
    capital = next((c for c in text if c.isalpha()), "a").isupper()
    if not letter.isalpha() or re.search(r"[\d&_=?;/.]$", text[:place]):
        return False
    if before:
        return letter.islower() and (text[place] == "&" or before[0].isupper())
    return text[place] == "&" or capital or letter.isupper()
