"""A second reading of catalogs by polib, and by `msgfmt -c` where it is installed."""

import itertools
import os
import re
import shutil
import subprocess
from contextlib import suppress
from string import Formatter
from typing import Any


def compare(before: bytes, after: bytes) -> str:
    """Returns the first difference of two catalogs but for translations, "" if none."""
    try:
        old, new = _catalog(before), _catalog(after)
    except OSError as error:
        return str(error)
    for name, value in old.metadata.items():
        is_open = not value or any(word in value for word in ("CHARSET", "INTEGER", "YEAR"))
        if not (is_open or name == "Content-Type" or new.metadata.get(name) == value):
            return f"{name} of the header has changed"
    if len(old) != len(new) or old.header != new.header:
        return f"{len(old)} entries became {len(new)}, or the first comment has changed"
    for one, other in zip(old, new, strict=True):
        forms, found = ({0: each.msgstr} | each.msgstr_plural for each in (one, other))
        if _fixed(one) != _fixed(other):
            return f"the entry {one.msgid!r} has changed"
        if not one.fuzzy and any(found.get(at) != text for at, text in forms.items() if text):
            return f"the translation of {one.msgid!r}, which was there, has changed"
        sources = [_asked(text, one.flags) for text in (one.msgid, one.msgid_plural)]
        for at, text in found.items():
            if text and text != forms.get(at) and _asked(text, one.flags) not in sources:
                return f"placeholders of {one.msgid!r} are not those of its translation"
    return "" if _fault(before) else _fault(after)


def _catalog(content: bytes) -> Any:
    import polib

    text = content.decode(polib.detect_encoding(content), "surrogateescape")
    # These end lines for polib only, which also wants a space behind the mark of a comment.
    text = re.sub("[\v\f\x1c-\x1e\x85\u2028\u2029]", " ", text)
    return polib.pofile(re.sub(r"(?m)^(#(?:~\||[,.:|~])?)(?=[^\s|,.:~])", r"\1 ", text))


def _fixed(entry: Any) -> list[Any]:
    names = (
        "msgctxt",
        "msgid",
        "msgid_plural",
        "comment",
        "tcomment",
        "occurrences",
        "obsolete",
    )
    flags = [flag for flag in entry.flags if flag != "fuzzy"]
    return [*(getattr(entry, name) for name in names), flags]


def _asked(text: str, flags: list[str]) -> list[str]:
    """Returns what a text asks for when Python formats it."""
    seen: list[str] = []

    class Argument(dict):  # whatever is wanted: it is also a dictionary of such
        __getitem__ = lambda self, key: seen.append(key) or self
        __str__ = __repr__ = lambda self: seen.append("s") or ""
        __index__ = lambda self: seen.append("d") or 65
        __float__ = lambda self: seen.append("f") or 6.5

    numbers = itertools.count()
    with suppress(ValueError):
        if "python-brace-format" in flags:
            for _, name, *rest in Formatter().parse(text):
                if name is not None:
                    first = "" if name and name[0] not in ".[" else next(numbers)
                    seen.append(f"{first}{name} {rest}")
        for count in range(20) if "python-format" in flags else ():
            seen.clear()
            with suppress(TypeError):  # too few or too many
                text % (Argument() if "%(" in text else (Argument(),) * count)
                return sorted(seen) if "%(" in text else seen
    return sorted(seen)


def _fault(content: bytes) -> str:
    if not (program := shutil.which("msgfmt")):
        return ""
    command = [program, "-c", "-o", os.devnull, "-"]
    done = subprocess.run(command, input=content, capture_output=True, check=False)
    lines = done.stderr.decode(errors="replace").splitlines()
    lines = [line for line in lines if "warning: " not in line]
    return f"msgfmt: {lines[0]}" if done.returncode and lines else ""
