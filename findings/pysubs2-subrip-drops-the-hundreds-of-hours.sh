#!/usr/bin/env bash
# pysubs2 1.8.1: a SubRip time of 100 hours or more loses its hundreds, in WebVTT it does not.
#
# Guess: both readers take the same times; recordings of cameras and hearings run past 99 hours.
# Behaviour: in SubRip "100:00:01,000" is read as one second, so that the cue ends before it
# begins; in WebVTT the same cue is right.
# Seen (start and end in milliseconds):
#     holds: SubRip (359999000, 1000), WebVTT (359999000, 360001000)
set -euo pipefail
scratch=$(mktemp -d)
exec 3>&2 2>"$scratch/log"
trap '[ $? = 0 ] || tail -n 20 "$scratch/log" >&3; rm -rf "$scratch"' EXIT
unset PYTHONPATH
venv=${FINDINGS_VENV:-$scratch/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet pysubs2==1.8.1
cat >"$scratch/finding.py" <<'PY'
import sys

import pysubs2

SUBRIP = "1\n99:59:59,000 --> 100:00:01,000\nLate.\n"
WEBVTT = "WEBVTT\n\n99:59:59.000 --> 100:00:01.000\nLate.\n"
(subrip,) = pysubs2.SSAFile.from_string(SUBRIP, "srt")
(webvtt,) = pysubs2.SSAFile.from_string(WEBVTT, "vtt")
found = (subrip.start, subrip.end), (webvtt.start, webvtt.end)
holds = found == ((359999000, 1000), (359999000, 360001000))
print("holds:" if holds else "changed:", "SubRip %s, WebVTT %s" % found)
sys.exit(not holds)
PY
"$venv/bin/python" -I "$scratch/finding.py"
