"""Files of other programs: PO, XLIFF, TMX, SRT and HTML, translated entry by entry.

The package translate-toolkit reads and writes them, so structure and comments stay. An entry
whose tags or placeholders its translation would lose stays as it is. No TensorFlow.
"""

import copy
import io
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

from tf_transformer.base.errors import UserError, missing_extra
from tf_transformer.base.files import replacing
from tf_transformer.terms.spans import differences

Languages = tuple[str, str]
Translate = Callable[[list[str]], Sequence[str]]

_MARKUP = re.compile(r"(<[^<>]+>|&(?:\w{1,31}|#\w{1,8});)")
_DECLARATION = re.compile(r"""\sxmlns(?::\w+)?=(?:"[^"]*"|'[^']*')""")
_LANGUAGE = "{http://www.w3.org/XML/1998/namespace}lang"


class Entries(NamedTuple):
    """Texts of a file that are to be translated.

    Attributes:
        texts: the texts; in those that are markup, `&` and `<` are escaped.
        is_markup: whether they are.
        write: returns the file with translations of these texts, None for one to leave.
        kept: number of entries that have a translation already.
    """

    texts: list[str]
    is_markup: bool
    write: Callable[[list[str | None]], bytes]
    kept: int = 0


def translate_file(
    source: Path, output: Path, translate: Translate, languages: Languages
) -> Counter[str]:
    """Translates a file; returns the numbers of entries `translated`, `kept` and `left`.

    Args:
        source: a file whose suffix is one of `FORMATS`.
        output: the file to write.
        translate: translates texts, each of any number of sentences.
        languages: codes of source and target.

    Raises:
        UserError: for another suffix, a file that cannot be read, or without the extra.
    """
    suffix = require_format(source)
    try:
        entries = FORMATS[suffix](source.read_bytes(), languages)
    except OSError as error:
        raise UserError(f"{source} cannot be read: {error.strerror}.") from None
    except ImportError:
        raise missing_extra(f"A {suffix} file", "translate-toolkit", "files") from None
    except UserError:
        raise
    except Exception as error:  # each format's reader has its own
        reason = " ".join(str(error).split())
        raise UserError(f"{source} cannot be read as {suffix}: {reason}.") from None
    found = translate(entries.texts) if entries.texts else []
    checked = [
        _checked(text, translation, entries.is_markup)
        for text, translation in zip(entries.texts, found, strict=True)
    ]
    with replacing(output) as temporary:
        temporary.write_bytes(entries.write(checked))
    left = checked.count(None)
    return Counter(translated=len(checked) - left, kept=entries.kept, left=left)


def require_format(path: Path) -> str:
    """Returns the suffix of a file that can be translated; UserError for another."""
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise UserError(
            f"The file must end in {', '.join(FORMATS)}. Received: {path}. Plain text is for "
            "`translate_text`, or stdin: `tf-transformer translate RUN --text < FILE`."
        )
    return suffix


def _checked(source: str, translation: str, is_markup: bool) -> str | None:
    """Returns a translation with its text escaped; None if it loses or adds markup."""
    if any(
        each.startswith(("tag ", "placeholder ")) for each in differences(source, translation)
    ):
        return None
    if not is_markup:
        return str(translation)
    parts = _MARKUP.split(translation)
    if Counter(parts[1::2]) != Counter(_MARKUP.findall(source)):
        return None
    parts[::2] = map(escape, parts[::2])
    return "".join(parts)


# --- Formats -----------------------------------------------------------------------------


def _po(content: bytes, _: Languages) -> Entries:
    from translate.storage.pypo import pofile

    store = pofile.parsestring(content)
    translatable = [unit for unit in store.units if unit.istranslatable()]
    units = [unit for unit in translatable if not unit.istranslated()]
    forms = [list(unit.source.strings) if unit.hasplural() else [unit.source] for unit in units]
    plural = str(store.getheaderplural()[0])
    number = int(plural) if plural.isdigit() else 2

    def write(found: list[str | None]) -> bytes:
        rest = iter(found)
        for unit, strings in zip(units, forms, strict=True):
            some = [next(rest) for _ in strings]
            if None in some:
                continue
            unit.target = [*some[:1], *some[1:] * (number - 1)] if len(some) > 1 else some[0]
            unit.markfuzzy(False)
        return bytes(store)

    texts = [str(text) for strings in forms for text in strings]
    return Entries(texts, False, write, len(translatable) - len(units))


def _xliff(content: bytes, _: Languages) -> Entries:
    from translate.storage import factory

    store = factory.getobject(_named(content, "file.xlf"))
    translatable = [unit for unit in store.units if unit.istranslatable()]
    units = [unit for unit in translatable if not unit.target]

    def write(found: list[str | None]) -> bytes:
        for unit, text in zip(units, found, strict=True):
            if text is not None:
                unit.target = "-"  # makes the element
                _set_content(unit.target_dom, text)
        return bytes(store)

    texts = [_content(unit.source_dom) for unit in units]
    return Entries(texts, True, write, len(translatable) - len(units))


def _tmx(content: bytes, languages: Languages) -> Entries:
    from translate.storage.tmx import tmxfile

    if not all(languages):
        raise UserError("A .tmx file needs the languages of the model, which has none.")
    store = tmxfile.parsestring(content)
    nodes = []
    for unit in store.units:
        by_code = {
            node.get(_LANGUAGE, "").lower()[:2]: node for node in unit.getlanguageNodes()
        }
        nodes.append([by_code.get(code.lower()[:2]) for code in languages])
    sources = [source for source, target in nodes if source is not None and target is None]

    def write(found: list[str | None]) -> bytes:
        for source, text in zip(sources, found, strict=True):
            if text is not None:
                target = copy.deepcopy(source)
                target.set(_LANGUAGE, languages[1])
                _set_content(target[-1], text)
                source.getparent().append(target)
        return bytes(store)

    kept = sum(target is not None for _, target in nodes)
    return Entries([_content(source[-1]) for source in sources], True, write, kept)


def _srt(content: bytes, _: Languages) -> Entries:
    from translate.storage.subtitles import SubRipFile

    store = SubRipFile.parsestring(content)
    lines = [unit.source.splitlines() for unit in store.units]

    def write(found: list[str | None]) -> bytes:
        for unit, before, text in zip(store.units, lines, found, strict=True):
            if text is not None:
                unit.target = "\n".join(_as_lines(text, len(before)))
        return bytes(store)

    return Entries([" ".join(some) for some in lines], False, write)


def _html(content: bytes, languages: Languages) -> Entries:
    from translate.storage.html import htmlfile

    units = htmlfile(_named(content, "file.html")).units
    known = {
        unit.source: languages[1] or unit.source
        for unit in units
        if any("[lang]" in place for place in unit.getlocations())
    }
    texts = [*dict.fromkeys(unit.source for unit in units if unit.source not in known)]

    def write(found: list[str | None]) -> bytes:
        answers = known | {
            text: one for text, one in zip(texts, found, strict=True) if one is not None
        }
        file = _named(content, "file.html")
        whole = htmlfile(file, callback=lambda text, **_: answers.get(text, text))
        return whole.filesrc.encode(whole.encoding or "utf-8")

    return Entries(texts, True, write)


FORMATS = {
    ".po": _po, ".pot": _po, ".xlf": _xliff, ".xliff": _xliff, ".tmx": _tmx, ".srt": _srt,
    ".html": _html, ".htm": _html,
}  # fmt: skip


def _named(content: bytes, name: str) -> io.BytesIO:
    file = io.BytesIO(content)
    file.name = name
    return file


def _as_lines(text: str, number: int) -> list[str]:
    """Breaks a text into a number of lines, of similar length."""
    for width in range(len(text) // number, len(text) + 1):
        lines = textwrap.wrap(text, max(width, 1), break_long_words=False)
        if len(lines) <= number:
            return lines
    return [text]


def _content(node: Any) -> str:
    """Returns what is inside an element of XML, without declarations of namespaces."""
    from lxml import etree

    inner = "".join(etree.tostring(child, encoding="unicode") for child in node)
    return escape(node.text or "") + _DECLARATION.sub("", inner)


def _set_content(node: Any, text: str) -> None:
    """Puts text with elements, as `_content` returns it, into an element."""
    from lxml import etree

    names = [
        f'xmlns{f":{prefix}" * bool(prefix)}="{uri}"' for prefix, uri in node.nsmap.items()
    ]
    made = etree.fromstring(f"<node {' '.join(names)}>{text}</node>")
    node.text, node[:] = made.text, list(made)
