#!/usr/bin/env bash
# sentencex 1.0.32: a Japanese sentence is cut before the closing mark of its quotation.
#
# Guess: both kinds of Japanese quotation marks are treated alike, and a closing mark belongs to
# the sentence that it closes.
# Behaviour: after a question mark in white corner brackets the cut comes before the closing
# bracket, which begins the next sentence. With plain corner brackets the bracket stays,
# although that sentence, too, is cut in two.
# Seen:
#     holds: 『本当？ | 』と言った。 but 「本当？」 | と言った。
set -euo pipefail
scratch=$(mktemp -d)
exec 3>&2 2>"$scratch/log"
trap '[ $? = 0 ] || tail -n 20 "$scratch/log" >&3; rm -rf "$scratch"' EXIT
unset PYTHONPATH
venv=${FINDINGS_VENV:-$scratch/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet sentencex==1.0.32
cat >"$scratch/finding.py" <<'PY'
import sys

import sentencex

texts = "『本当？』と言った。", "「本当？」と言った。"
white, plain = (list(sentencex.segment("ja", text)) for text in texts)
holds = [white, plain] == [["『本当？", "』と言った。"], ["「本当？」", "と言った。"]]
print("holds:" if holds else "changed:", " | ".join(white), "but", " | ".join(plain))
sys.exit(not holds)
PY
"$venv/bin/python" -I "$scratch/finding.py"
