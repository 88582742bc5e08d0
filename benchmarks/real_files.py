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
_MSGSTR = r'(?m)^(msgstr(?:\[\d\])?)[ \t]*"[^\n]*(?:\n[ \t]*"[^\n]*)*\n?'
_FUZZY = r"(?m)^#\|.*\n|^#, *fuzzy *\r?\n|(?<=^#), *fuzzy(?=,)|, *fuzzy(?=\r?$)"
_OTHER = r"<alt-trans\b.*?</alt-trans>|<\w+:match\b.*?</\w+:match>"  # with targets that stay
_TARGET = rf"(?s)({_OTHER})|\s*<(x(?:lf)?:)?target\b(?:[^>]*/>|.*?</(?(2)\2)target>)"
_TUV = r"(?is)()\s*<tuv\b[^>]*\blang=[\"']{}\b(?:(?!</tuv).)*</tuv>"
_STATES = (
    r"""\s(?:state(?:-qualifier)?|subState|approved|target-language|trgLang)=["'][^"']*."""
)
_TAG = r"<!--.*?-->|<(?:script|style)\b.*?</(?:script|style)>|<[a-z/!?](?:\"[^\"]*\"|'[^']*'"
_TAG = rf"(?is)({_TAG}|[^'\">])*>)"
_ATTRIBUTES = r"(?:alt|title|placeholder|abbr|summary|label|aria-\w+|content|value)="
_ATTRIBUTES = rf"(?is)\s({_ATTRIBUTES})(\"[^\"]*\"|'[^']*'|[^\s>]+)|\s(?:xml:)?lang=[^\s>]+"
_CUE = r"(?m)^(.*-->.*)\n((?:.*\S.*\n?)*)"
_FROM = r"(?:source-language|srcLang|srclang|<html\b[^>]*\slang)=[\"']?([a-z][\w-]+)"
_TO = r"(?m)(?:target-language|trgLang)=[\"']([\w-]+)|^\"Language: *([\w.@-]+)\\n"
_COLUMNS = ("files", "refused", "entries", "translated", "kept", "left", "outside")
_VALID = "{before} → {after} of {judged}, {worse} worse"


def main(arguments: Sequence[str] | None = None) -> None:
    parser, found = make_parser(__doc__, rounds=None), defaultdict(Counter)
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER")
    parser.add_argument("--schema", nargs="*", default=[], type=Path, metavar="FILE")
    parser.add_argument("--blank", action="store_true", help="also without translations")
    options = parser.parse_args(arguments)
    for path in [path for folder in options.folders for path in sorted(folder.rglob("*.*"))]:
        suffix = path.suffix.lower().replace("xliff", "xlf").replace("html", "htm")
        if path.suffix.lower() not in FORMATS or not path.is_file():
            continue
        content = path.read_bytes()
        text, encoding = _decoded(content)
        version = re.search(r"<(?:\w+:)?(?:xliff|tmx)\b[^>]*\sversion=.([\d.]+)", text)
        kind = f"{suffix[1:].upper()} {version[1] if version else ''}".strip()
        blanked = _without(text, kind, _languages(text)[1], ' ""\n')
        found[kind].update(_measured(path, content, kind, options.schema))
        if options.blank and blanked != text:
            counts = _measured(path, blanked.encode(encoding), kind, options.schema)
            found[f"{kind}, blanked"].update(counts)
    rows, reasons = [], []
    for kind, counts in sorted(found.items()):
        rate = 1e3 * counts["translated"] / max(1, counts["milliseconds"])
        cells = [f"{counts[each]:,}" for each in _COLUMNS]
        valid = _VALID.format_map(counts) if counts["judged"] else ""
        rows.append([kind, *cells, valid, f"{rate:,.0f}"])
        reasons += [[kind, k, f"{n:,}"] for k, n in counts.most_common() if ": " in k]
    report = Report("real_files", vars(options), options.output, {"counts": found})
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
    both = [_outside(_decoded(each)[0], kind, languages[1]) for each in (content, after)]
    for line in difflib.unified_diff(*both, n=0, lineterm="") if both[0] != both[1] else ():
        if line[0] in "-+" and line.strip() not in ("---", "+++"):
            counts["outside"] += len(line[1:].encode())
            print(f"{path}: {line[:200]!r}")
    before, now = (_faults(each, kind, schemas) for each in (content, after))
    if before is not None:
        new = now - before
        counts.update(judged=1, before=not before, after=not now, worse=bool(new))
        print(f"{path}: new faults: {new}\n" * bool(new), end="")
    return counts


def _translate(texts: list[str], numbers: bool) -> list[Found]:
    found = [_WORDS.sub(lambda m: m[0] if m[0][0] in "<{" else m[0].upper(), t) for t in texts]
    return [*map(Found, found)]


def _decoded(content: bytes) -> tuple[str, str]:
    is_utf_16 = content[:2] in (b"\xff\xfe", b"\xfe\xff")
    is_utf_8 = content.decode(errors="ignore").encode() == content
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
    heads = ('msgid ""\n', 'msgid ""\r\n')
    stays = lambda m: by and text.endswith(heads, 0, m.start())  # noqa: E731
    return re.sub(_MSGSTR, lambda m: m[0] if stays(m) else by and m[1] + by, text)


def _outside(text: str, kind: str, target: str) -> list[str]:
    """Returns the parts of a file that must not change."""
    if kind == "HTM":
        parts = re.split(_TAG, text)
        parts[::2] = map(_flat, parts[::2])
        parts[1::2] = [re.sub(_ATTRIBUTES, _value, part) for part in parts[1::2]]
        return parts
    marks = _FUZZY if kind[:2] == "PO" else _STATES
    text = re.sub(_CUE if kind in ("SRT", "VTT") else "(?!)", _cue, text)
    return re.sub(marks, "", _without(text, kind, target)).split("\n")


def _cue(match: re.Match) -> str:
    return f"{match[1]}\n{_flat(match[2]).strip()}\n"


def _value(match: re.Match) -> str:
    return match[1] + _flat(match[2].strip("\"'")) if match[1] else ""


def _flat(text: str) -> str:
    return re.sub(r"\s+", " ", html.unescape(text).upper())


def _faults(content: bytes, kind: str, schemas: Sequence[Path]) -> set[str] | None:
    if kind.startswith("PO"):
        command = ["msgfmt", "-c", "-o", "/dev/null", "-"]
        done = subprocess.run(command, input=content, capture_output=True, check=False)
        return {"msgfmt"} if done.returncode else set()
    if kind == "HTM":
        parser = html5lib.HTMLParser()
        parser.parse(content)
        return {code for _, code, _ in parser.errors}
    name = kind.replace(".", "").replace(" ", "").lower() if "TMX" in kind else kind[4:]
    for path in [each for each in schemas if name and name in each.name]:
        schema = etree.DTD(str(path)) if path.suffix == ".dtd" else etree.XMLSchema(file=path)
        schema.validate(etree.fromstring(content, etree.XMLParser(huge_tree=True)))
        return {error.message for error in schema.error_log}
    return None


if __name__ == "__main__":
    run(main)
