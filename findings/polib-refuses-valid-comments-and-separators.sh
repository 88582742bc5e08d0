#!/usr/bin/env bash
# polib 1.2.0: catalogs that gettext's own programs read raise a syntax error.
#
# Guess: what msgcat accepts, polib.pofile parses; the space after the mark of a comment is a
# habit, and only CR and LF end a line.
# Behaviour: polib demands a space after `#` and `#,`, and splits lines as str.splitlines does,
# so a LINE SEPARATOR (U+2028) inside a string ends its line. All of it raises OSError.
# Seen (the exit status of msgcat, then what polib does):
#     holds: '#,fuzzy': msgcat 0, polib OSError; '#text': msgcat 0, polib OSError;
#     U+2028: msgcat 0, polib OSError; with spaces and without U+2028: msgcat 0, polib reads it
# Needs msgcat (gettext).
set -euo pipefail
scratch=$(mktemp -d)
exec 3>&2 2>"$scratch/log"
trap '[ $? = 0 ] || tail -n 20 "$scratch/log" >&3; rm -rf "$scratch"' EXIT
unset PYTHONPATH
venv=${FINDINGS_VENV:-$scratch/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet polib==1.2.0
cat >"$scratch/finding.py" <<'PY'
import subprocess
import sys

import polib

HEAD = 'msgid ""\nmsgstr "Content-Type: text/plain; charset=UTF-8\\n"\n\n'
ENTRY = 'msgid "one{}two"\nmsgstr "drei"\n'
CATALOGS = {
    "'#,fuzzy'": "#,fuzzy\n" + ENTRY.format(" "),
    "'#text'": "#text\n" + ENTRY.format(" "),
    "U+2028": ENTRY.format("\u2028"),
    "with spaces and without U+2028": "# text\n#, fuzzy\n" + ENTRY.format(" "),
}
found = {}
for name, entry in CATALOGS.items():
    text = HEAD + entry
    command = ["msgcat", "-o", "/dev/null", "-"]
    status = subprocess.run(command, input=text.encode(), check=False).returncode
    try:
        polib.pofile(text)
        result = "reads it"
    except OSError as error:
        result = type(error).__name__
    found[name] = f"msgcat {status}, polib {result}"
expected = ["msgcat 0, polib OSError"] * 3 + ["msgcat 0, polib reads it"]
holds = [*found.values()] == expected
print("holds:" if holds else "changed:", "; ".join(f"{k}: {v}" for k, v in found.items()))
sys.exit(not holds)
PY
"$venv/bin/python" -I "$scratch/finding.py"
