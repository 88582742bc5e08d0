#!/usr/bin/env bash
# sentencepiece 0.2.3: its module of model messages cannot be imported with protobuf 6, though
# nothing declares it.
#
# Guess: a package that ships generated protobuf code names the protobuf that it needs, or works
# with any that pip leaves in place, as its tokenizer itself does.
# Behaviour: the wheel requires no package, and its extra `protobuf` takes any version. The
# tokenizer trains and encodes with protobuf 6.33.6; `sentencepiece_model_pb2`, by which a
# model's pieces are read, raises VersionError there, and imports with protobuf 7.36.1. Packages
# that cap protobuf below 7 (Apache Beam 2.77) so break programs that read models.
# Seen:
#     holds: requires nothing; protobuf 6.33.6: trains, then VersionError; 7.36.1: imports
set -euo pipefail
scratch=$(mktemp -d)
exec 3>&2 2>"$scratch/log"
trap '[ $? = 0 ] || tail -n 20 "$scratch/log" >&3; rm -rf "$scratch"' EXIT
unset PYTHONPATH
venv=${FINDINGS_VENV:-$scratch/venv}
[ -x "$venv/bin/python" ] || python3 -m venv "$venv"
"$venv/bin/pip" install --quiet sentencepiece==0.2.3 protobuf==6.33.6
cat >"$scratch/finding.py" <<'PY'
import io
import sys
from importlib.metadata import requires, version

import sentencepiece

model, lines = io.BytesIO(), iter(["a cat sees a dog", "two dogs run"] * 20)
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=lines, model_writer=model, vocab_size=16, minloglevel=2
)
pieces = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue()).encode("a cat")
needed = [each for each in requires("sentencepiece") if each != 'protobuf; extra == "protobuf"']
needed = [each for each in needed if "protobuf" in each and "test" not in each] or ["nothing"]
try:
    import sentencepiece.sentencepiece_model_pb2

    end = "imports"
except Exception as error:
    end = type(error).__name__
print(version("protobuf"), bool(pieces), *needed, end, sep=",")
PY
six=$("$venv/bin/python" -I "$scratch/finding.py")
"$venv/bin/pip" install --quiet protobuf==7.36.1
seven=$("$venv/bin/python" -I "$scratch/finding.py")
if [ "$six" = "6.33.6,True,nothing,VersionError" ] && [ "$seven" = "7.36.1,True,nothing,imports" ]; then
    echo "holds: requires nothing; protobuf 6.33.6: trains, then VersionError; 7.36.1: imports"
else
    echo "changed: $six; $seven"
    exit 1
fi
