"""Placeholders, tags and accelerators that are written in a text: `%s`, `<b>`, `&File`.

Each kind of format string has a table, named by gettext's flags; a text without a flag has
the union "any", which is careful with prose: "50 % of", "at 12:30", "$5". No expression looks
far beyond the next character that it may begin with: so the time is linear.
"""

import re
from collections import defaultdict
from dataclasses import replace
from typing import Any, NamedTuple

from tf_transformer.translation.files.entries import Code, Pieces, Text, without_codes


class _Style(NamedTuple):
    values: str  # an expression for placeholders; its group `next` takes the next argument
    place: str = ""  # what numbers such a placeholder, behind its first character
    first: int = 1


def _printf(kinds: str, flags: str = "[-+ #0'I]", sizes: str = "hh?|ll?|[jztLqwV]|I64") -> str:
    number = r"(?:\d+|\*(?:\d+\$)?)?"
    spec = rf"{flags}*{number}(?:\.{number})?(?:{sizes})?(?:{kinds})"
    return rf"%%|%\d+\${spec}|(?P<next>%{spec})"


_MARKUP = (
    r"<!--(?:(?!-->|<!--)[\s\S])*-->|&(?:[A-Za-z]\w{1,30}|\#\w{1,8});"
    r"""|<(?P<close>/?)(?P<name>[A-Za-z][\w:-]*)(?:"[^"<]*"|'[^'<]*'|[^<>"'])*>"""
)
_C = "%m|" + _printf(r"[@diouxXeEfFgGaAcspnCS]|<PRI\w+>")
_LETTERS = _printf("[a-zA-Z]")
_ANY = _Style(
    r"https?://[^\s<>\"{}%]{0,300}%[\dA-F]{2}[^\s<>\"{}]{0,300}"
    r"|\{\{(?:(?!\{\{|\}\})[\s\S])*\}\}+|\{%(?:(?!\{%|%\})[\s\S])*%\}"
    r"|<%(?:(?!<%|%>)[\s\S])*%>|<\?(?:(?!<\?|\?>)[\s\S])*\?>"
    r"|[$#%]?\{[^{}\n]{0,80}(?:\{[^{}\n]*\}[^{}\n]*)*\}"
    r"|%\([^()\s]{1,80}\)[-+#0 ]*\d*(?:\.\d+)?[a-zA-Z]|%%|%\d%|%\|[^|\s]*\|"
    r"|%\d+\$[-+#0-9.]*l*[a-zA-Z]|(?<!\d)%(?!d(?:min|sec))[a-z_]{4,}"  # the last is Drupal's
    # After a digit a percent sign is prose: "a 50%ige chance".
    r"|(?P<next>(?<!\d)%[-+#0]*(?:\d+|\*)?(?:\.(?:\d+|\*)?)?(?:hh?|ll?|[jzt])?[disuxXfFgGeEcp@])"
    r"|%L?[1-9]\d?(?![\dA-F])|%L?n(?![a-z])|(?<!\d)%[-_0^#]?[A-Za-z](?![A-Za-z])"
    r"|(?<![\w$])\$[A-Za-z_]\w*|(?<![\w@.])@[A-Za-z_]\w*|(?<![^\s(\[\"'>]):[A-Za-z_]\w+:?"
)
_STYLES = {
    "any boost icu-message": _ANY,
    "subtitle": _Style(r"\{\\[^{}]*\}|\{[A-Za-z]:[^{}]*\}|<\d[\d:.]*>"),
    "c awk d elisp javascript librep objc sh-printf tcl": _Style(_C, "{}$"),
    "gcc-internal perl": _Style("%[<>'m]|" + _printf("v?[a-zA-Z]", "[-+ #0q]"), "{}$"),
    "php": _Style(_printf("[bcdeEfFgGosuxX]", "(?:'.|[-+ 0])", "l"), "{}$"),
    "java-printf": _Style("%n|%<[a-zA-Z]+|" + _printf("[tT]?[a-zA-Z]", "[-+ #0,(]"), "{}$"),
    "ruby": _Style(r"%[-+# \d.]*(?:<\w+>[-+# \d.]*[a-zA-Z]|\{\w+\})|" + _LETTERS, "{}$"),
    "python lua": _Style(r"%\([^()]*\)[-+ #0]*[\d.*]*[hlL]?[a-zA-Z]|" + _LETTERS),
    "object-pascal": _Style(r"%%|%\d+:[-\d.]*[a-zA-Z]|(?P<next>%-?[\d.*]*[a-zA-Z])", "{}:", 0),
    "qt qt-plural kde kde-kuit ycp": _Style(r"%L?\d{1,2}|%L?n"),
    "sh": _Style(r"\$[A-Za-z_]\w*|\$\{\w+\}"),
    "perl-brace": _Style(r"\{[A-Za-z_]\w*\}"),
    "python-brace c++ rust": _Style(
        r"\{\{|\}\}|(?P<next>(?=\{[}!:.\[]))?\{[^{}]*(?:\{[^{}]*\}[^{}]*)*\}", "{}", 0
    ),
    "java csharp": _Style(r"\{\{|\}\}|\{\d[^{}]*\}"),
}
_BY_NAME = {name: style for names, style in _STYLES.items() for name in names.split()}
_ICU = re.compile(r"(?i)\{\s{0,9}[\w.-]{0,60}\s{0,9},\s{0,9}(plural|select\w*|choice)\s?,")


def text_of(pieces: Pieces, style: str) -> Text | str:
    """Returns a text with the codes that are written in its strings, or why it must be left.

    Args:
        pieces: the text; it may have codes already.
        style: a flag such as "c-format", "any" if there is none, or "subtitle".
    """
    table = _BY_NAME.get(style.removesuffix("-format"))
    if table is None:
        return f"{style} is not known"
    finder = re.compile(f"{table.values}|{_MARKUP}")
    parts: list[Any] = []  # strings, codes, and matches for new codes
    for piece in pieces:
        text, end = piece if isinstance(piece, str) else "", 0
        for match in finder.finditer(text):
            parts += [text[end : match.start()], match]
            end = match.end()
        parts.append(text[end:] if isinstance(piece, str) else piece)
    found = [piece for piece in _with_codes(parts, table) if piece]
    if style == "subtitle":
        return Text(found)
    if _ICU.search(without_codes(pieces)):
        return "ICU message"
    messages = re.sub(r"\[[^\[\]]*\]|\([^()]*\)", "", without_codes(found)).split("|")
    # In other styles `|` is an "or", as in "-a|-b", or stands in a title.
    if table is _ANY and len(messages) > 1 and all(re.search(r"[^\W\d_]", m) for m in messages):
        return "several messages in one, separated by |"
    return _without_accelerator(found)


def _with_codes(parts: list[Any], table: _Style) -> list[str | Code]:
    arguments: list[str] = []

    def number(match: re.Match) -> str:
        if match.groupdict().get("next") is None:
            return match[0]
        arguments.append(match[0])
        place = (table.place or "{}").format(table.first + len(arguments) - 1)
        return match[0][0] + place + match[0][1:]

    matches = {at: part for at, part in enumerate(parts) if isinstance(part, re.Match)}
    # A tag may have placeholders too: <a href="%s">.
    numbered = {at: re.sub(table.values, number, match[0]) for at, match in matches.items()}
    # A width of `*` or `{}` takes an argument of its own.
    can = table.place and len(arguments) > 1 and not re.search(r"\*|\S\{", "\n".join(arguments))
    opened: dict[str, list[int]] = defaultdict(list)
    for at, match in matches.items():
        role: Any = "single" if re.match(r"<[!\w/]", match[0]) else "value"
        name, pair = (match["name"] or "").lower(), None
        if name and match["close"] and opened[name]:
            first = opened[name].pop()
            role, pair = "close", f"written {first}"
            parts[first] = replace(parts[first], role="open", pair=pair)
        elif name and not match["close"] and not match[0].endswith("/>"):
            opened[name].append(at)
        takes = numbered[at] != match[0]
        parts[at] = Code(match[0], role, pair, None, numbered[at] * bool(takes and can), takes)
    return parts


def _without_accelerator(pieces: Pieces) -> Text:
    """Takes the mark of a key off a short text: one `&` or `_` before a letter."""
    # A placeholder may be a part of a word or a number.
    text = "".join(p if isinstance(p, str) else "0" * (p.role == "value") for p in pieces)
    marks = [mark for mark in "&_" if text.count(mark) == 1 and _is_mark(text, mark)]
    if len(marks) != 1 or len(text) > 60:
        return Text(pieces)
    accelerator = text[text.index(marks[0]) :][:2]
    # Languages whose letters are on no key have "(&F)" at the end.
    off = rf"\s?[(（]{accelerator}[)）]|{accelerator[0]}"
    return Text([re.sub(off, "", p) if isinstance(p, str) else p for p in pieces], accelerator)


def _is_mark(text: str, mark: str) -> bool:
    """Tells `&File`, `E&xit`, `Cu_t`, `Show _all` from Q&a, Barnes&noble, File_name and _id.

    A mark begins a word; or it is the text's only one, stands behind one or two letters, and
    small letters follow to the end of a word of three letters or more.
    """
    before, _, after = text.partition(mark)
    word, rest = re.split(r"\W|_", before)[-1], re.split(r"\W", after)[0]
    if word:
        is_short = word.isalpha() and len(word) < 3 <= len(word + rest)
        is_only = text.count("&") + text.count("_") == 1
        shape = rest.isalpha() and rest.islower() and (mark == "&" or word[0].isupper())
        return is_short and is_only and shape
    if not rest[:1].isalpha() or not re.search(r"^$|[\s(（\[\"'“„«¿¡]$", before):
        return False
    return mark == "&" or text.lstrip("_&(\"' ")[:1].isupper() or after[0].isupper()
