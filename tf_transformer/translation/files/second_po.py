"""A second reading of catalogs by polib, and by `msgfmt -c` where it is installed."""

import re
import shutil
import subprocess
from collections import defaultdict
from contextlib import suppress
from string import Formatter
from typing import Any

_MAY_CHANGE = re.compile("msgstr|flags|linenum|previous")


def compare(before: bytes, after: bytes) -> str:
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
