"""Catalogs of gettext (.po) and their templates (.pot).

Entries without a translation, and fuzzy ones, are translated; of a plural, the missing forms,
by the rule in the header: that for one thing is the singular's translation, the second of two
the plural's. If there are more, they are the plural with a number of their kind in place of
the placeholder ("2 files", "5 files"), which is put back; a plural with no such placeholder,
or several, has the same translation in all of them.
"""

import codecs
import gettext
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import NamedTuple

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files import entries as e
from tf_transformer.translation.files.placeholders import text_of

_STRING = r'"(?:[^"\\\r\n]|\\.)*'
_TOKEN = re.compile(
    r"\s+|(?P<comment>#[^\r\n]*\r?\n?)|(?P<keyword>msg(?:ctxt|id(?:_plural)?|str(?:\[\d+\])?)(?!\w))"
    rf'|(?P<string>{_STRING})"|(?P<wrong>.)'
)
_CHARSET = (  # in the header only
    rf'msgid\s+""\s+msgstr(?:\s*{_STRING}")*?\s*{_STRING}?charset=(?!CHARSET)([\w.:-]+)'
)
# Of octal digits gettext reads three at most; of hexadecimal ones all that follow.
_ESCAPES = {code: f"\\{code:03o}" for code in range(32)} | {34: r"\"", 92: r"\\"}
_ESCAPES |= {code: f"\\{name}" for code, name in enumerate("abtnvfr", 7)}
_NUMERIC = re.compile(r"%.*[diu]$|PRI|\b(?:n|num|number|count)\b")
_Numbers = Sequence[Sequence[int]]  # of things that each form of a plural is for
_Value = tuple[int, int, int, str]  # places of a keyword, of its strings, their end; their text


class _Message(NamedTuple):
    comments: list[re.Match]
    values: dict[str, _Value]
    end: str  # of lines

    def flags(self) -> list[str]:
        lines = [line[0][2:] for line in self.comments if line[0][:2] == "#,"]
        return [flag.strip() for flag in ",".join(lines).split(",") if flag.strip()]

    def forms(self) -> dict[int, _Value]:
        """Returns what there is of a translation, by the numbers of forms."""
        return {int(k[7:-1] or 0): v for k, v in self.values.items() if k[:6] == "msgstr"}


def read(content: bytes, languages: e.Languages, fuzzy: bool = False) -> e.Document:
    """Reads a catalog; the header of a template is completed for the model's language.

    If `fuzzy`, translated entries are marked so. Raises UserError for what gettext cannot read
    either, or a header with another language.
    """
    named = re.search(_CHARSET.encode(), content)
    text, encoding, bom = e.decoded(content, [named[1].decode() if named else "utf-8"])
    messages = [*_messages(text)]
    headers = [m for m in messages if m.values["msgid"][3] == "" and len(m.values) == 2][:1]
    is_plural = any("msgid_plural" in each.values for each in messages)
    edits, rule = _completed(headers[0], languages, is_plural) if headers else ([], "")
    numbers = _numbers(rule)
    found = [_outcome(m, numbers, fuzzy) for m in messages if m not in headers]
    entries = [each for each in found if isinstance(each, e.Entry)]
    left = [each for each in found if isinstance(each, e.Left)]
    charset = next((match.span(1) for match in re.finditer(_CHARSET, text)), None)
    return e.Document(text, encoding, entries, found.count(None), left, edits, charset, bom)


def _messages(text: str) -> Iterator[_Message]:
    end = "\r\n" if text[: text.find("\n")].endswith("\r") else "\n"
    message, keyword = _Message([], {}, end), ""
    strings: dict[str, list[str]] = {}
    for token in _TOKEN.finditer(f"{text}{end}msgid"):
        begins = token["comment"] or token["keyword"] in ("msgctxt", "msgid")
        if (
            begins
            and message.forms()
            and all(stop for _, _, stop, _ in message.values.values())
        ):
            joined = {k: (*v[:3], "".join(strings[k])) for k, v in message.values.items()}
            yield message._replace(values=joined, end=end)
            message = _Message([], {}, end)
        if "\n" in token[0]:
            end = "\r\n" if "\r\n" in token[0] else "\n"
        values = message.values
        if token["comment"]:
            message.comments.append(token)
            if token[0][:2] == "#~":  # an old entry, to which the comments belong
                message.comments.clear()
        elif token["keyword"] and token[0] not in values and (begins or "msgid" in values):
            keyword = token[0]
            values[keyword], strings[keyword] = (token.start(), 0, 0, ""), []
        elif token["string"] is not None and values:
            place, start, *_ = values[keyword]
            new = codecs.escape_decode(token["string"][1:].encode())[0].decode(errors="replace")
            strings[keyword].append(new)
            values[keyword] = place, start or token.start(), token.end(), ""
        elif not token[0].isspace():
            line = text.count("\n", 0, token.start()) + 1
            raise UserError(f"line {line} is not as in a catalog")


def _completed(
    header: _Message, languages: e.Languages, is_plural: bool
) -> tuple[list[e.Edit], str]:
    """Returns the edits of a header that is a template's, and its rule for plurals."""
    from babel.messages.plurals import PLURALS

    _, start, stop, text = header.forms()[0]
    fields = dict(re.findall(r"(?m)^([\w-]+):[ \t]*(.*)", text))
    e.require_languages(("", fields.get("Language", "")), languages)
    target = (fields.get("Language") or languages[1]).replace("-", "_")
    rule, new = fields.get("Plural-Forms", ""), {"Language": target}
    known = PLURALS.get(target) or PLURALS.get(target.split("_")[0])
    if known and ("INTEGER" in rule or (is_plural and not rule)):
        rule = new["Plural-Forms"] = "nplurals={}; plural={};".format(*known)
    if fields.get("PO-Revision-Date", "").startswith("YEAR"):
        new["PO-Revision-Date"] = f"{datetime.now(UTC):%Y-%m-%d %H:%M%z}"
    if "charset=CHARSET" in text:
        new["Content-Type"] = "text/plain; charset=UTF-8"
    if len(new) == 1 and fields.get("Language") != "":
        return [], rule
    text = text and text.rstrip("\n") + "\n"
    for name, value in new.items():
        line = f"{name}: {value}\n"
        text = re.sub(rf"(?m)^{name}:.*\n", line, text) if name in fields else text + line
    written = e.Edit(start, stop, (_written([text], header.end),))
    return [written, *_comment_edits(header, False)], rule


def _numbers(rule: str) -> list[list[int]]:
    """Returns the numbers of things that each form of a plural is for; none without a rule."""
    match = re.search(r"nplurals\s*=\s*(\d{1,2})\s*;\s*plural\s*=([^;]+)", rule)
    numbers: list[list[int]] = [[] for _ in range(int(match[1]) if match else 0)]
    with suppress(ValueError, ArithmeticError, IndexError):
        form = gettext.c2py(match[2].strip()) if match else int
        for number in [*range(1, 200), 0]:
            numbers[form(number)].append(number)
        return numbers
    return []


def _outcome(message: _Message, numbers: _Numbers, fuzzy: bool) -> e.Entry | e.Left | None:
    """Returns an entry to translate, or one that is left; None if there is nothing to do."""
    values, flags, forms, end = message.values, message.flags(), message.forms(), message.end
    sources = [values[each] for each in ("msgid", "msgid_plural") if each in values]
    done = {at: each for at, each in forms.items() if each[3] and "fuzzy" not in flags}
    wanted = range(len(numbers) or len(forms)) if len(sources) > 1 else [0]
    missing = [at for at in wanted if at not in done]
    if not missing:
        return None
    formats = [flag for flag in flags if re.match(r"(?!no-|im|possible)[\w+-]+-format$", flag)]
    name = ": ".join(values[each][3] for each in ("msgctxt", "msgid") if each in values)[:60]
    start, texts = sources[0][0], []
    reason = "a plural without Plural-Forms" * (len(sources) > 1 and not numbers)
    for *_, source in sources:
        text = e.Text([source])
        for style in formats or ["any"]:
            found = text_of(text.pieces, style)
            if reason or isinstance(found, str):
                return e.Left(start, name, reason or str(found))
            text = replace(found, accelerator=text.accelerator or found.accelerator)
        texts.append(text)
    texts = [*_forms(texts[0], texts[1], numbers)] if len(texts) > 1 else texts

    def edits(translations: Sequence[e.Pieces | None]) -> Iterator[e.Edit]:
        new = dict(zip(missing, translations, strict=True))
        # msgfmt wants the placeholder in each form: one whose translation fails is as another.
        good = [found for at, found in new.items() if found and texts[at].may_lack]
        pieces: list[str | e.Range] = []
        for at in sorted({*wanted, *done}):
            keyword = f"msgstr[{at}] " if len(sources) > 1 else "msgstr "
            string = _written(new.get(at) or [[], *good][-1], end)
            pieces += [end * bool(pieces) + keyword, done[at][1:3] if at in done else string]
        yield e.Edit(min(forms.values())[0], max(forms.values())[2], tuple(pieces))
        yield from _comment_edits(message, fuzzy)

    return e.Entry(start, name, [texts[at] for at in missing], edits)


def _forms(singular: e.Text, plural: e.Text, numbers: _Numbers) -> Iterator[e.Text]:
    """Yields the text of each form of a plural."""
    codes = [piece for piece in plural.pieces if isinstance(piece, e.Code)]
    values = [each for each in codes if each.role == "value" and each.written[-1] not in "%;"]
    values = [each for each in values if _NUMERIC.search(each.written)] or values
    code = values[0] if len(values) == 1 else None
    is_in_both = code is None or code.written in e.plain(singular.pieces)
    ordered = [each for each in codes if each.in_order]
    numbered: dict[object, e.Code] = {}
    if code in ordered and len(ordered) > 1:  # whose order says less without this one
        numbered = {c: replace(c, written=c.numbered, in_order=False) for c in ordered}
        code = numbered[code] if code and code.numbered else None
    pieces = [numbered.get(piece, piece) for piece in plural.pieces]
    text = e.without_codes(pieces)
    for served in numbers:
        given = next((str(n) for n in served if n != 1 and str(n) not in text), "")
        if 1 in served and len(numbers) > 1 and (max(served) == 1 or is_in_both):
            yield singular
        elif len(numbers) < 3 or not code or not given:
            yield plural
        else:
            counted = [given if piece is code else piece for piece in pieces]
            yield replace(plural, pieces=counted, stands_in=(given, code), may_lack=True)


def _comment_edits(message: _Message, fuzzy: bool) -> Iterator[e.Edit]:
    """Yields edits for the flag `fuzzy`; what a fuzzy entry was before goes in any case."""
    flags, place = message.flags(), min(message.values.values())[0]
    new = ["fuzzy"] * fuzzy + [flag for flag in flags if flag != "fuzzy"]
    for line in message.comments:
        if line[0][:2] == "#|" or (line[0][:2] == "#," and new != flags):
            yield e.Edit(line.start(), line.end(), ())
    if new and new != flags:
        yield e.Edit(place, place, (f"#, {', '.join(new)}{message.end}",))


def _written(pieces: e.Pieces, end: str) -> str:
    lines = re.findall(r"[^\n]*\n|[^\n]+", e.plain(pieces))
    strings = [f'"{line.translate(_ESCAPES)}"' for line in lines]
    return end.join(['""'] * (len(lines) != 1) + strings)
