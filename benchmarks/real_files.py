"""Files that others wrote, translated by a stand-in for a model: what is left, and what breaks.

    python benchmarks/real_files.py FOLDER... --blank --schema xliff-core-1.2-strict.xsd

The stand-in writes words in capitals. "outside" counts the bytes of changed parts outside of
translations, as regular expressions of this file find them: of lines without `msgstr`, "fuzzy"
and previous texts in PO, without `target` in XLIFF, without the target's `tuv` in TMX; of tags
and texts in HTML, and of cues, in capitals but for tags, with entities read and white space
collapsed. Names of languages and states may change. "valid" counts files without a fault before
and after, "worse" those with a new kind of fault: by `msgfmt -c`, by html5lib, by the --schema
that has the version in its name ("1.2", "tmx14"). Languages are those that a file names, else
English and German. --blank adds a copy of each file without its translations.
"""

import difflib
import html
import re
import subprocess
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from pathlib import Path

import html5lib
from harness.options import make_parser, run
from harness.report import Report, table
from lxml import etree

from tf_transformer.base.errors import UserError
from tf_transformer.translation.files.translate_file import FORMATS, Found, translate_file

_WORDS = re.compile(r"</?x+\d+/?>|\{x+\d+\}|[^\W\d_]+")
_OTHER = r"<alt-trans\b.*?</alt-trans>|<\w+:match\b.*?</\w+:match>"  # with targets that stay
_TARGET = rf"(?s)({_OTHER})|\s*<(x(?:lf)?:)?target\b(?:[^>]*/>|.*?</(?(2)\2)target>)"
_TUV = r"(?is)()\s*<tuv\b[^>]*\blang=[\"']{}\b(?:(?!</tuv).)*</tuv>"
_MSGSTR = r'(?m)^(msgstr(?:\[\d\])?)[ \t]*"[^\n]*(?:\n[ \t]*"[^\n]*)*\n?'
_FUZZY = r"(?m)^#\|.*\n|^#, *fuzzy *\r?\n|(?<=^#), *fuzzy(?=,)|, *fuzzy(?=\r?$)"
_STATES = r"\s(?:state(?:-qualifier)?|subState|approved|target-language|trgLang)=([\"']).*?\1"
_TAG = r"<!--.*?-->|<(?:script|style)\b.*?</(?:script|style)>|<[a-z/!?](?:\"[^\"]*\"|'[^']*'"
_TAG = rf"(?is)({_TAG}|[^'\">])*>)"
_ATTRIBUTES = r"(?:alt|title|placeholder|abbr|summary|label|aria-\w+|content|value)="
_ATTRIBUTES = rf"(?is)(\s{_ATTRIBUTES})(\"[^\"]*\"|'[^']*'|[^\s>]+)|\s(?:xml:)?lang=[^\s>]+"
_CUE = r"(?m)^(.*-->.*\n)((?:.*\S.*\n?)*)"
_FROM = r"(?:source-language|srcLang|srclang|<html\b[^>]*\slang)=[\"']?([a-z][\w-]+)"
_TO = r"(?m)(?:target-language|trgLang)=[\"']([\w-]+)|^\"Language: *([\w.@-]+)\\n"
_VERSION = r"<(?:\w+:)?(?:xliff|tmx)\b[^>]*\sversion=.([\d.]+)"
_COLUMNS = ("files", "refused", "entries", "translated", "kept", "left", "outside")


def main(arguments: Sequence[str] | None = None) -> None:
    parser, found = make_parser(__doc__, rounds=None), defaultdict(Counter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--schema", nargs="*", default=[], type=Path, metavar="FILE")
    parser.add_argument("--blank", action="store_true", help="also without translations")
    options = parser.parse_args(arguments)
    report = Report("real_files", vars(options), options.output, {"counts": found})
    paths = [path for folder in options.folders for path in sorted(folder.rglob("*.*"))]
    for path in [each for each in paths if each.suffix.lower() in FORMATS]:
        content, suffix = path.read_bytes(), path.suffix.upper()[1:].replace("XLIFF", "XLF")
        text, encoding = _decoded(content)
        kind = " ".join([suffix, *re.findall(_VERSION, text)[:1]])
        blanked = _without(text, kind, _languages(text)[1], ' ""\n').encode(encoding)
        found[kind] += _measured(path, content, kind, options.schema)
        if options.blank and blanked != text.encode(encoding):
            found[f"{kind}, blanked"] += _measured(path, blanked, kind, options.schema)
    rows, reasons = [], []
    for kind, counts in sorted(found.items()):
        valid = "{before} → {after} of {judged}, {worse} worse".format_map(counts)
        rate = 1e3 * counts["translated"] / max(1, counts["milliseconds"])
        cells = [f"{counts[each]:,}" for each in _COLUMNS]
        rows.append([kind, *cells, valid if counts["judged"] else "", f"{rate:,.0f}"])
        reasons += [[kind, k, f"{n:,}"] for k, n in counts.most_common() if ": " in k]
    print(f"\n{table(['', *_COLUMNS, 'valid', 'translated a second'], rows)}")
    print(f"\n{table(['', 'refused or left', ''], reasons)}\n\n{report.say_machine()}")
    print("wrote", report.write())


def _measured(path: Path, content: bytes, kind: str, schemas: Sequence[Path]) -> Counter[str]:
    languages, began = _languages(_decoded(content)[0]), time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        source, output = (Path(folder, name + path.suffix) for name in ("in", "out"))
        source.write_bytes(content)
        try:
            report = translate_file(source, output, _translate, languages)
        except Exception as error:  # each is a finding
            why = str(error).removeprefix(f"{source} ") if isinstance(error, UserError) else ""
            print(f"{path} {languages}: {why or repr(error)}")
            why = re.sub(r"\d+|'.*?'|\".*?\"", "…", why or repr(error))[:70]
            return Counter({"files": 1, "refused": 1, f"refused: {why}": 1})
        after = output.read_bytes()
    counts = Counter(files=1, milliseconds=round(1e3 * (time.perf_counter() - began)))
    for reason, number in report.counts.items():
        names = (reason,) if reason in ("translated", "kept") else ("left", f"left: {reason}")
        counts.update(dict.fromkeys(("entries", *names), number))
    for record in report.records:
        if "another program" in record["reasons"][0]:
            print(f"{path}: {record}")
    both = [_outside(_decoded(each)[0], kind, languages[1]) for each in (content, after)]
    for line in difflib.unified_diff(*both, n=0, lineterm="") if both[0] != both[1] else ():
        if line[0] in "-+" and line.strip() not in ("---", "+++"):
            counts["outside"] += len(line[1:].encode())
            print(f"{path}: {line[:200]!r}")
    before, now = (_faults(each, kind, schemas) for each in (content, after))
    if before is not None:
        counts.update(judged=1, before=not before, after=not now, worse=bool(now - before))
        print(f"{path}: new faults: {now - before}\n" * bool(now - before), end="")
    return counts


def _translate(texts: list[str], numbers: bool) -> list[Found]:
    found = [_WORDS.sub(lambda m: m[0] if m[0][0] in "<{" else m[0].upper(), t) for t in texts]
    return [*map(Found, found)]


def _decoded(content: bytes) -> tuple[str, str]:
    is_utf_8 = content.decode(errors="ignore").encode() == content
    is_utf_16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    encoding = "utf-16" if is_utf_16 else "utf-8" if is_utf_8 else "latin-1"
    return content.decode(encoding), encoding


def _languages(text: str) -> tuple[str, str]:
    variants = re.findall(r"<tuv\b[^>]*\blang=[\"']([\w-]+)", text)
    source = [*re.findall(_FROM, text), *variants, "en"][0]
    others = [each for each in variants if each[:2].lower() != source[:2].lower()]
    default = "en" if source[:2] == "de" else "de"
    return source, [*map("".join, re.findall(_TO, text)), *others, default][0]


def _without(text: str, kind: str, target: str, by: str = "") -> str:
    """Returns a file with something instead of its translations; a header stays then."""
    if kind not in ("PO", "POT"):
        which = {"XLF": _TARGET, "TMX": _TUV.format(target[:2])}.get(kind[:3], "()(?!)")
        return re.sub(which, r"\1", text)

    def emptied(match: re.Match) -> str:
        is_header = text.endswith(('msgid ""\n', 'msgid ""\r\n'), 0, match.start())
        return match[0] if by and is_header else by and match[1] + by

    return re.sub(_MSGSTR, emptied, text)


def _outside(text: str, kind: str, target: str) -> list[str]:
    """Returns the parts of a file that must not change."""
    if kind in ("HTM", "HTML"):
        parts = re.split(_TAG, text)
        tags = [re.sub(_ATTRIBUTES, _in_capitals, tag) for tag in parts[1::2]]
        return [*tags, *map(_flat, parts[::2])]
    text = re.sub(_CUE if kind in ("SRT", "VTT") else "(?!)", _in_capitals, text)
    text = _without(text, kind, target)
    return re.sub(_FUZZY if kind[:2] == "PO" else _STATES, "", text).split("\n")


def _in_capitals(match: re.Match) -> str:
    return (match[1] or "") + _flat(match[2] or "").strip(" '\"")


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(text).upper())


def _faults(content: bytes, kind: str, schemas: Sequence[Path]) -> set[str] | None:
    if kind in ("PO", "POT"):
        command = ["msgfmt", "-c", "-o", "/dev/null", "-"]
        done = subprocess.run(command, input=content, capture_output=True, check=False)
        return {"msgfmt"} if done.returncode else set()
    if kind in ("HTM", "HTML"):
        parser = html5lib.HTMLParser()
        parser.parse(content)
        return {code for _, code, _ in parser.errors}
    name = kind[4:] if "XLF" in kind else kind.lower().replace(".", "").replace(" ", "")
    for path in [each for each in schemas if name and name in each.name]:
        schema = etree.DTD(str(path)) if path.suffix == ".dtd" else etree.XMLSchema(file=path)
        schema.validate(etree.fromstring(content, etree.XMLParser(huge_tree=True)))
        return {error.message for error in schema.error_log}
    return None


if __name__ == "__main__":
    run(main)
